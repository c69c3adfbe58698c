package network

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	overlayVersion = "nearmetal-overlay 2"
	maxHello       = 128 // bytes of a line
	answerYes      = "yes "
	answerGone     = "gone"
)

// hello is the greeting of a caller: "VERSION FROM TO KIND ID new|more RECEIVED". The answer is "yes RECEIVED", "gone"
// (the link no longer exists), or "no" (the greeting is for another host).
type hello struct {
	from, to int
	kind, id string
	fresh    bool   // the caller has never received an answer for this link
	received uint64 // bytes of the link that the caller has received
}

// String returns the greeting's line, without its end.
func (h hello) String() string {
	word := "more"
	if h.fresh {
		word = "new"
	}
	return fmt.Sprintf("%s %d %d %s %s %s %d", overlayVersion, h.from, h.to, h.kind, h.id, word, h.received)
}

// parseHello parses the line that another host sent. It fails if a field is malformed.
func parseHello(line string) (hello, error) {
	rest, ours := strings.CutPrefix(line, overlayVersion+" ")
	f := strings.Split(rest, " ")
	if !ours || len(f) != 6 {
		return hello{}, errors.New("network: a host of another version called")
	}
	from, err1 := strconv.ParseUint(f[0], 10, 16)
	to, err2 := strconv.ParseUint(f[1], 10, 16)
	received, err3 := strconv.ParseUint(f[5], 10, 63)
	h := hello{from: int(from), to: int(to), kind: f[2], id: f[3], fresh: f[4] == "new", received: received}
	if errors.Join(err1, err2, err3) != nil || h.String() != line || !only(h.kind, 16, "abcdefghijklmnopqrstuvwxyz") ||
		len(h.id) != 32 || !only(h.id, 32, "0123456789abcdef") || h.fresh && h.received != 0 {
		return hello{}, errors.New("network: malformed handshake")
	}
	return h, nil
}

// check returns an error unless the greeting is for host self of n, and from another of them. Two hosts of a job may be
// one machine, in which case the caller may have reached the other one.
func (h hello) check(self, hosts int) error {
	if h.from >= hosts || h.from == self || h.to != self {
		return errors.New("network: connection from a host outside this job")
	}
	return nil
}

// only reports whether s has 1 to most bytes, all of them in set.
func only(s string, most int, set string) bool {
	return s != "" && len(s) <= most && strings.Trim(s, set) == ""
}

// readLine reads a line byte by byte, because the bytes that follow belong to the next reader.
func readLine(c io.Reader) (string, error) {
	var line [maxHello]byte
	for n := range line {
		if _, err := io.ReadFull(c, line[n:n+1]); err != nil {
			return "", err
		}
		if line[n] == '\n' {
			return string(line[:n]), nil
		}
	}
	return "", errors.New("network: a greeting without an end")
}
