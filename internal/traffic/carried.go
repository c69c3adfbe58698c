package traffic

import (
	"fmt"
	"io"
	"strings"

	"nearmetal/internal/words"
)

// Carried is the traffic of a network interface of a VM, or of a port of an RDMA device in it, while a command ran. The
// VM's kernel counts it for all programs in the VM.
type Carried struct {
	VM        string `json:"vm"`
	Interface string `json:"interface"`
	Received  uint64 `json:"received"` // bytes
	Sent      uint64 `json:"sent"`     // bytes
}

// Uncounted is the reason why there is no matrix.
const Uncounted = "What each VM sent to each other is not counted: nearmetal's provider is in VMs only where several of one host share a region."

// CarriedRows returns a table of what the interfaces carried, with a header row, or nil if they carried nothing.
func CarriedRows(list []Carried) [][]string {
	rows := [][]string{{"vm", "interface", "received", "sent"}}
	for _, c := range list {
		if c.Received > 0 || c.Sent > 0 {
			rows = append(rows, []string{c.VM, c.Interface, words.Bytes(c.Received), words.Bytes(c.Sent)})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}

// WriteCarried writes for people what the VMs' interfaces carried. It is used if ranks did not count their messages
// because nearmetal's provider was not in the VMs.
func WriteCarried(w io.Writer, list []Carried) error {
	var b strings.Builder
	b.WriteString(Uncounted + "\n")
	if rows := CarriedRows(list); rows == nil {
		b.WriteString("What the VMs' interfaces carried is not known either.\n")
	} else {
		fmt.Fprintln(&b, "Meanwhile the VMs' interfaces carried, of all programs:")
		columns(&b, rows)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
