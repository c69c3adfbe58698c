package words

import (
	"errors"
	"os"
)

// Cause returns why an operation on a file failed, without the operation and the path, for a message that names the
// file as its user knows it. Other errors are returned unchanged.
func Cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
