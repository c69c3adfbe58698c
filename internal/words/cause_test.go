package words

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

func TestCause(t *testing.T) {
	_, missing := os.Open("/no/such/file")
	link := os.Rename("/no/such/file", "/no/such/other")
	for _, err := range []error{missing, link, fmt.Errorf("x: %w", missing)} {
		if got := Cause(err).Error(); got != "no such file or directory" {
			t.Errorf("%v: %q", err, got)
		}
	}
	if other := errors.New("full"); Cause(other) != other {
		t.Error("another error")
	}
}
