package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
)

func newLogsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "logs [NAME[/VM]] [--follow]",
		GroupID: groupCluster,
		Short:   "Show the console of a VM",
		Long: `Shows what a VM has written on its console: the kernel's and the agent's
messages. Control characters are made harmless.`,
		Example:           "  nearmetal logs\n  nearmetal logs -f demo/vm1",
		Args:              rangeArgs(0, "NAME[/VM]"),
		ValidArgsFunction: completeTarget,
	}
	vm := addVMFlag(cmd, "whose console is shown")
	follow := cmd.Flags().BoolP("follow", "f", false, "keep printing what is written, until the cluster ends")
	cmd.Flags().BoolVarP(follow, "follow-older", "F", false, "the older form of -f")
	cmd.Flags().Lookup("follow-older").Hidden = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := vmTarget(args, *vm)
		if err != nil {
			return err
		}
		r, err := state.Find(t.Cluster)
		if err != nil {
			return err
		}
		name, err := r.FindVM(t.VM)
		if err != nil {
			return err
		}
		ctx, stop := interruptible()
		defer stop()
		out := &byteCount{Writer: cmd.OutOrStdout()}
		if len(r.Remote) == 0 {
			err = state.Logs(ctx, r, name, *follow, out)
		} else {
			err = farLogs(ctx, r.Name, name, *follow, out)
		}
		if err == nil && out.n == 0 && !*follow {
			fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: %s has written nothing on its console\n", name)
		}
		return err
	}
	return cmd
}

// farLogs implements state.Logs for a VM on another host.
func farLogs(ctx context.Context, name, vm string, follow bool, out io.Writer) error {
	c, err := client.Connect(ctx, name)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Console(ctx, vm, follow, out)
}

// byteCount counts the bytes written to it.
type byteCount struct {
	io.Writer
	n int
}

func (c *byteCount) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += n
	return n, err
}
