package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/check"
	"nearmetal/internal/host/fleet"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// runFleet checks many hosts and reports their differences.
func (f *checkFlags) runFleet(ctx context.Context, cmd *cobra.Command, p *terminal.Progress) error {
	profile := check.Profile(f.profile)
	if _, err := check.Select(profile, f.only); err != nil {
		return checkError(err)
	}
	list, err := fleet.ReadList(f.fleet)
	if err != nil {
		return fmt.Errorf("--fleet: %w", err)
	}
	step := p.Start("asking " + counted(len(list), "host", "hosts"))
	hosts := fleet.Gather(ctx, list, fleet.Options{Via: f.via, Profile: profile, Only: f.only,
		Done: func(n int) { step.Detail("%d of %d", n, len(list)) }})
	step.Done()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	c := fleet.Compare(hosts)
	if *f.json {
		err = terminal.PrintJSON(cmd.OutOrStdout(), c)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), f.fleetText(cmd, c))
	}
	if err == nil && c.Failed() {
		err = findings(nil)
	}
	return err
}

// fleetText lays out a comparison: hosts without a report, hosts that differ, then check by check.
func (f *checkFlags) fleetText(cmd *cobra.Command, c *fleet.Comparison) string {
	t := f.text(cmd)
	var b strings.Builder
	answered := 0
	for _, h := range c.Hosts {
		if h.Report != nil {
			answered++
			continue
		}
		b.WriteString(t.Hanging("no report from " + h.Name + ": " + h.Error))
	}
	fmt.Fprintf(&b, "%s, %s\n", counted(answered, "host", "hosts"), counted(len(c.Differences), "check differs", "checks differ"))
	for i, o := range c.Odd {
		word := "then"
		if i == 0 {
			word = "the odd one out"
		}
		const most = 10
		if i == most {
			fmt.Fprintf(&b, "and %d more\n", len(c.Odd)-most)
			break
		}
		b.WriteString(t.Hanging(fmt.Sprintf("%s: %s, unlike most in %s", word, o.Host, strings.Join(o.IDs, ", "))))
	}
	for _, d := range c.Differences {
		fmt.Fprintf(&b, "\n%s (%s)\n", d.ID, text.Clean(d.Title))
		for _, v := range d.Values {
			found := v.Found
			if found == "" {
				found = "-"
			}
			b.WriteString(t.Indented(fmt.Sprintf("%s: %s [%s: %s]", v.Status, found, counted(len(v.Hosts), "host", "hosts"), strings.Join(v.Hosts, " "))))
		}
	}
	var failing []string
	for _, h := range c.Hosts {
		if h.Report != nil && h.Report.Failed() {
			failing = append(failing, fmt.Sprintf("%s (%d)", h.Name, h.Report.Count(check.Fail)))
		}
	}
	if len(failing) > 0 {
		b.WriteString("\n" + t.Hanging("failed checks: "+strings.Join(failing, ", ")))
	}
	return b.String()
}
