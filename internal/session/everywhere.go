package session

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"nearmetal/internal/guest"
)

// Result is the end of a command in one VM.
type Result struct {
	VM     string
	Status guest.Status
	Err    error
}

// Everywhere runs e once in each of the VMs, concurrently, and returns the results in their order. Input is passed
// only to the first VM, as mpirun passes it to rank 0; streams returns each VM's outputs. A signal is passed to all.
func Everywhere(ctx context.Context, c *guest.Client, vms []string, e guest.Exec, in io.Reader, streams func(vm string) (out, err io.WriteCloser), sigs <-chan os.Signal) []Result {
	res := make([]Result, len(vms))
	each := make([]chan os.Signal, len(vms))
	var wg sync.WaitGroup
	for i, vm := range vms {
		each[i] = make(chan os.Signal, 16)
		s := Streams{}
		if i == 0 {
			s.In = in
		}
		out, errw := streams(vm)
		s.Out, s.Err = out, errw
		wg.Add(1)
		go func() {
			defer wg.Done()
			st, err := Run(ctx, c.VM(vm), e, s, each[i])
			if e := out.Close(); err == nil {
				err = e // the last line, if it has no newline, is written only now
			}
			errw.Close()
			res[i] = Result{vm, st, err}
		}()
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for {
		select {
		case s := <-sigs:
			for _, c := range each {
				select {
				case c <- s:
				default: // its command no longer receives signals
				}
			}
		case <-ended:
			return res
		}
	}
}

// Worst returns the exit status for several results, which is the highest, as in srun. It joins the errors of VMs
// that were lost.
func Worst(res []Result) (code int, err error) {
	var errs []error
	for _, r := range res {
		errs = append(errs, r.Err)
		if r.Err == nil {
			code = max(code, r.Status.ExitCode())
		}
	}
	return code, errors.Join(errs...)
}
