package check

import (
	"bytes"
	"encoding/json"
)

// plainResult is Result without its JSON methods.
type plainResult Result

// resultJSON is Result's JSON form. Mend is fix's old name, kept until 0.2.0.
type resultJSON struct {
	*plainResult
	Mend string `json:"mend"`
}

// MarshalJSON also writes the fix under its old name, for programs that read that.
func (r Result) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the outer encoder decides
	err := e.Encode(resultJSON{(*plainResult)(&r), r.Fix})
	return b.Bytes(), err
}

// UnmarshalJSON reads the fix under its old name if the new one is missing, in a report of an older nearmetal.
func (r *Result) UnmarshalJSON(b []byte) error {
	j := resultJSON{plainResult: (*plainResult)(r)}
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if r.Fix == "" {
		r.Fix = j.Mend
	}
	return nil
}
