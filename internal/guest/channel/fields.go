package channel

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Field is a key with a value. Neither contains a NUL; a key is not empty and contains no '='.
type Field struct{ Key, Value string }

// Fields are the header of a stream, a message, or a HELLO. A key that occurs more than once is a list.
type Fields []Field

// Get returns the first value of key, or "".
func (f Fields) Get(key string) string {
	for _, x := range f {
		if x.Key == key {
			return x.Value
		}
	}
	return ""
}

// All returns the values of key in their order.
func (f Fields) All(key string) []string {
	var v []string
	for _, x := range f {
		if x.Key == key {
			v = append(v, x.Value)
		}
	}
	return v
}

// Add appends a field.
func (f *Fields) Add(key, value string) { *f = append(*f, Field{key, value}) }

// AddInt appends a field with a number.
func (f *Fields) AddInt(key string, value int64) { f.Add(key, strconv.FormatInt(value, 10)) }

// Without returns a copy that lacks every field with one of the keys.
func (f Fields) Without(keys ...string) Fields {
	out := make(Fields, 0, len(f))
next:
	for _, x := range f {
		for _, k := range keys {
			if x.Key == k {
				continue next
			}
		}
		out = append(out, x)
	}
	return out
}

// Uint returns the first value of key as a number, or an error if it is missing, not a decimal number, or above most.
func (f Fields) Uint(key string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(f.Get(key), 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%s: %q is not a number up to %d", key, f.Get(key), most)
	}
	return n, nil
}

func validField(key, value string) error {
	if key == "" || strings.ContainsAny(key, "=\x00") {
		return fmt.Errorf("%q cannot be a key", key)
	}
	if strings.IndexByte(value, 0) >= 0 {
		return fmt.Errorf("%s: a NUL byte in %q", key, value)
	}
	return nil
}

// maxFields is the maximum number of fields that are accepted in one piece.
const maxFields = 64 << 10

// Encode returns the fields as `key=value` texts, each ended by a NUL.
func (f Fields) Encode() ([]byte, error) {
	var b []byte
	for _, x := range f {
		if err := validField(x.Key, x.Value); err != nil {
			return nil, err
		}
		b = append(b, x.Key...)
		b = append(b, '=')
		b = append(b, x.Value...)
		b = append(b, 0)
	}
	return b, nil
}

// DecodeFields decodes the output of Encode, from an untrusted source.
func DecodeFields(b []byte) (Fields, error) {
	n := bytes.Count(b, []byte{0})
	if n > maxFields {
		return nil, protocolError("%d fields", n)
	}
	f := make(Fields, 0, n)
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0)
		if i < 0 {
			return nil, protocolError("a field without an end")
		}
		k, v, ok := bytes.Cut(b[:i], []byte{'='})
		if !ok || len(k) == 0 {
			return nil, protocolError("a field without a key")
		}
		f = append(f, Field{string(k), string(v)})
		b = b[i+1:]
	}
	return f, nil
}

// encodeOpen returns kind and header as the payload of OPEN.
func encodeOpen(kind string, h Fields) ([]byte, error) {
	if !validKind(kind) {
		return nil, fmt.Errorf("%q cannot be the kind of a stream", kind)
	}
	b, err := h.Encode()
	if err != nil {
		return nil, err
	}
	if len(kind)+1+len(b) > MaxHeader {
		return nil, fmt.Errorf("a header of %d bytes; the most is %d", len(b), MaxHeader)
	}
	return append(append([]byte(kind), 0), b...), nil
}

func decodeOpen(b []byte) (kind string, h Fields, err error) {
	i := bytes.IndexByte(b, 0)
	if i < 0 || !validKind(string(b[:min(i, 33)])) {
		return "", nil, protocolError("a stream without a kind")
	}
	h, err = DecodeFields(b[i+1:])
	return string(b[:i]), h, err
}

func validKind(k string) bool {
	if k == "" || len(k) > 32 {
		return false
	}
	for _, c := range []byte(k) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
