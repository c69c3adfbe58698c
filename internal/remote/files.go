package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// File is a file that the program needs on the other host.
type File struct {
	Local  string // path here
	Remote string // below the folder of the copy there: plain words and slashes
	Size   int64
	sum    string // SHA-256, hexadecimal
}

// Files are what is copied: the first is the program.
type Files struct{ list []File }

// mark starts the lines that are for us: a shell's start may print others before them.
const mark = "nearmetal-remote-1 "

// Bounds of what comes before the program: a line, and all lines that are not ours, in bytes.
const (
	lineMost  = 1024
	noiseMost = 64 << 10
)

// NewFiles reads and sums up the files of a copy. Each is of 1 byte to 256 MiB.
func NewFiles(list ...File) (*Files, error) {
	f := &Files{}
	for _, x := range list {
		h := sha256.New()
		in, err := os.Open(x.Local)
		if err != nil {
			return nil, err
		}
		x.Size, err = io.Copy(h, in)
		in.Close()
		if err != nil {
			return nil, err
		}
		if x.Size < 1 || x.Size > 256<<20 {
			return nil, fmt.Errorf("%s: %d bytes are not copied to another host", x.Local, x.Size)
		}
		if strings.Trim(x.Remote, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") != "" || x.Remote == "" {
			return nil, fmt.Errorf("%q is not the path of a copy", x.Remote)
		}
		x.sum = hex.EncodeToString(h.Sum(nil))
		f.list = append(f.list, x)
	}
	if len(f.list) == 0 {
		return nil, errors.New("no program to run on another host")
	}
	return f, nil
}

// script is the command for the host's login shell, whichever it is: it has sh see to the files, each of which it
// asks for where it is missing or another, and becomes the program. Its words need no quotes within the single
// ones, and there is no character that a C shell expands in them.
func (f *Files) script(args []string) string {
	var b strings.Builder
	// The folder is named by the program's sum: another version has another.
	fmt.Fprintf(&b, `d="${XDG_CACHE_HOME:-$HOME/.cache}/nearmetal/programs/%s"; u=$(umask); umask 077; if test -d "$d"; then touch "$d"; fi; `, f.list[0].sum[:32])
	b.WriteString(`same() { test -f "$1" && test "$(sha256sum <"$1" | cut -c1-64)" = "$2"; }; `)
	fmt.Fprintf(&b, `put() { if same "$1" "$2"; then echo %[1]shave; return; fi; mkdir -p "${1%%/*}" || exit 91; echo %[1]sneed; `+
		`t="$1.$$"; head -c "$3" >"$t"; if same "$t" "$2"; then chmod 700 "$t" && mv -f "$t" "$1" || exit 92; echo %[1]shave; `+
		`else rm -f "$t"; echo %[1]sbroken; exit 93; fi; }; `, mark)
	for _, x := range f.list {
		fmt.Fprintf(&b, `put "$d/%s" %s %d; `, x.Remote, x.sum, x.Size)
	}
	fmt.Fprintf(&b, `umask "$u"; echo %sstart >&2; exec "$d/%s" %s`, mark, f.list[0].Remote, strings.Join(args, " "))
	return "exec /bin/sh -c '" + b.String() + "'"
}

// install sends what the host asks for. It returns when the program is about to start there.
func (s *Session) install(files *Files) error {
	noise := 0
	answer := func() (string, error) {
		for {
			line, err := s.Line(lineMost)
			if err != nil {
				return "", err
			}
			if word, ours := strings.CutPrefix(line, mark); ours {
				return word, nil
			}
			if noise += len(line); noise > noiseMost {
				return "", &Unreached{s.Host, "its shell prints more than it should before it runs a command"}
			}
		}
	}
	for _, x := range files.list {
		word, err := answer()
		if err != nil {
			return err
		}
		if word == "need" {
			if err := s.send(x); err != nil {
				return err
			}
			if word, err = answer(); err != nil {
				return err
			}
		}
		if word != "have" {
			return &Unreached{s.Host, fmt.Sprintf("the copy of %s did not arrive as it was sent", x.Local)}
		}
	}
	return nil
}

// send sends one file.
func (s *Session) send(x File) error {
	in, err := os.Open(x.Local)
	if err != nil {
		return err
	}
	defer in.Close()
	if n, err := io.Copy(s.in, io.LimitReader(in, x.Size)); err != nil {
		return s.why(err)
	} else if n != x.Size {
		return fmt.Errorf("%s: it was %d bytes long and is %d now", x.Local, x.Size, n)
	}
	return nil
}
