package state

// VMError is the unexpected end of a VM, or its failure to become ready.
type VMError struct {
	Err     error
	Console []string // the last lines of the VM's console
}

func (e *VMError) Error() string { return e.Err.Error() }

func (e *VMError) Unwrap() error { return e.Err }

// Lines returns the error and the console's last lines, for a person.
func (e *VMError) Lines() []string {
	lines := []string{e.Err.Error()}
	if len(e.Console) > 0 {
		lines[0] += "; its console's last lines:"
	}
	for _, l := range e.Console {
		lines = append(lines, "  "+l)
	}
	return lines
}
