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
	Local  string // path on this host
	Remote string // path below the directory of the copy there: plain words and slashes
	Size   int64
	sum    string // SHA-256, hexadecimal
}

// Files are the files to copy, of which the first is the program.
type Files struct{ list []File }

// mark starts the lines that are meant for nearmetal, because a shell's startup files may print others before them.
const mark = "nearmetal-remote-1 "

// Bounds of the output before the program's, in bytes: of a line, and of all lines without mark.
const (
	lineMost  = 1024
	noiseMost = 64 << 10
)

// NewFiles reads and hashes the files of a copy. It fails unless each has 1 byte to 256 MiB.
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

// script returns the command for the host's login shell, whichever it is. The command has sh request each file that is
// missing or differs, and then becomes the program. Its words need no quotes within the single quotes, and it contains
// no character that a C shell expands there.
func (f *Files) script(args []string) string {
	var b strings.Builder
	// The directory is named after the program's sum, so that each version has its own.
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

// install sends the files that the host requests. It returns when the program is about to start there.
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
