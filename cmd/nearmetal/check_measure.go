package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/check"
	"nearmetal/internal/host/measure"
	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
)

// checkMeasured is what `nearmetal check --measure --json` prints.
type checkMeasured struct {
	*check.Report
	Measured *measure.Result `json:"measured"`
}

// runMeasure checks this host and measures its timings.
func (f *checkFlags) runMeasure(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, o check.Options) error {
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	h, err := topology.Read("/")
	if err != nil {
		return err
	}
	step := p.Start("measuring")
	defer step.Done()
	m, err := measure.Run(ctx, measure.Options{Host: h, RDMA: check.ActiveRDMA(), Detail: func(s string) { step.Detail("%s", s) }})
	if err != nil {
		return err
	}
	step.Done()
	if *f.json {
		err = terminal.PrintJSON(cmd.OutOrStdout(), checkMeasured{&r, m})
		if err == nil && r.Failed() {
			err = findings(nil)
		}
		return err
	}
	err = f.show(cmd, &r)
	if _, bad := io.WriteString(cmd.OutOrStdout(), "\n"+m.Text()); bad != nil {
		return bad
	}
	return err
}
