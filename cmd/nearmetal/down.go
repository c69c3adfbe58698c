package main

import (
	"os"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/job"
	"nearmetal/internal/terminal"
)

// ended is a cluster that down ended, or failed to end.
type ended struct {
	Name  string   `json:"name"`
	Lost  []string `json:"lost"`            // lines about unsaved files of programs
	Error string   `json:"error,omitempty"` // why it did not end
}

func newDownCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "down [NAME...] [--all] [--json]",
		GroupID: groupCluster,
		Short:   "End clusters",
		Long: `Ends clusters: programs are killed, shares written back, VMs powered off, and
everything that was made for them is removed. Without a name it ends
$NEARMETAL_CLUSTER, or the only cluster that runs.`,
		Example: `  nearmetal down
  nearmetal down demo
  nearmetal down --all`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeClusters(cmd, args, typed)
		},
	}
	all := cmd.Flags().Bool("all", false, "end all of the user's clusters")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p := progress(cmd)
		defer p.Close()
		if *all && len(args) > 0 {
			return usagef("give names or --all, not both")
		}
		for i, name := range args { // check all of them before one is ended
			var err error
			if args[i], err = clusterTarget(cmd, name); err != nil {
				return err
			}
		}
		if err := sweep(p); err != nil {
			return err
		}
		if *all {
			list, err := state.List()
			if err != nil {
				return err
			}
			for _, r := range list {
				if r.State != state.Dead {
					args = append(args, r.Name)
				}
			}
		} else if len(args) == 0 {
			args = []string{""}
		}
		ctx, stop := interruptible()
		defer stop()
		var failed errorList
		list := []ended{}
		for _, name := range args {
			e := ended{Name: name, Lost: []string{}}
			c, err := client.Connect(ctx, name)
			if err == nil {
				e.Name, e.Lost = c.Record.Name, append(e.Lost, job.Lost(c)...)
				for _, line := range e.Lost {
					if !*asJSON {
						p.Printf("%s", line)
					}
				}
				step := p.Start("ending " + c.Record.Name)
				err = c.Down(ctx)
				step.Done()
				c.Close()
				if err == nil && os.Getenv("NEARMETAL_CLUSTER") == c.Record.Name && len(job.UnsetCommands()) > 0 {
					p.Notef("this shell still sends the ranks of mpirun to %s: eval $(nearmetal env --unset)", c.Record.Name)
				}
			}
			if err != nil {
				e.Error = err.Error()
				failed = append(failed, err)
			}
			list = append(list, e)
		}
		if *asJSON {
			p.Close()
			if err := terminal.PrintJSON(cmd.OutOrStdout(), list); err != nil {
				return err
			}
		}
		if failed != nil {
			return failed
		}
		return nil
	}
	return cmd
}
