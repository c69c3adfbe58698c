package spec

import (
	"bytes"
	"errors"
	"io"
	"sort"
	"strconv"

	"gopkg.in/yaml.v3"

	"nearmetal/internal/lazyregexp"
)

// documents returns the first two documents in data, nil if there are fewer.
func documents(data []byte) (first, second *yaml.Node, err error) {
	// The library has panicked on malformed text before; a panic must not end the program.
	defer func() {
		if recover() != nil {
			first, second, err = nil, nil, errors.New("the text cannot be read")
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for _, document := range []**yaml.Node{&first, &second} {
		var n yaml.Node
		if err := decoder.Decode(&n); err == io.EOF {
			break
		} else if err != nil {
			return nil, nil, err
		}
		*document = &n
	}
	return first, second, nil
}

var yamlPrefix = lazyregexp.New(`^yaml: (?:line (\d+): )?`)

// syntax reports a mistake in the YAML itself. The library reports no column, and for some mistakes the line where
// the surrounding structure begins. Therefore the place is searched: the shortest prefix of the file with the same
// mistake ends with the line that causes it.
func (r *reader) syntax(data []byte, err error) {
	const searched = 128 << 10 // bytes; parsing more some twenty times would last too long
	message := yamlPrefix().ReplaceAllString(err.Error(), "")
	at := place{column: 1}
	if m := yamlPrefix().FindStringSubmatch(err.Error()); m != nil {
		at.line, _ = strconv.Atoi(m[1])
	}
	if len(data) <= searched {
		lines := bytes.SplitAfter(data, []byte("\n"))
		ends := make([]int, len(lines)) // of each line, in data
		end := 0
		for i, line := range lines {
			end += len(line)
			ends[i] = end
		}
		i := sort.Search(len(lines)-1, func(i int) bool {
			_, _, err := documents(data[:ends[i]])
			return err != nil && yamlPrefix().ReplaceAllString(err.Error(), "") == message
		})
		indent := len(lines[i]) - len(bytes.TrimLeft(lines[i], " "))
		at = place{i + 1, indent + 1}
		if bytes.HasPrefix(lines[i][indent:], []byte("\t")) {
			message = "a line is indented with a tab: use spaces"
		}
	}
	r.problems.add(Problem{File: r.file, Line: at.line, Column: at.column, Message: "is not YAML: " + message})
}
