package main

import (
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/job"
)

// target is the cluster, or one VM of it, that a command acts on.
type target = job.Target

// vmTarget parses the target of a command that accepts [NAME[/VM]] and --vm, the older form of its second half.
func vmTarget(args []string, vm string) (target, error) {
	t := job.ParseTarget(firstArg(args))
	switch {
	case vm == "" || t.VM == vm:
	case t.VM != "":
		return t, usagef("%s and --vm %s name two VMs: leave one out", args[0], vm)
	default:
		t.VM = vm
	}
	return t, nil
}

// clusterTarget parses the target of a command that acts on whole clusters.
func clusterTarget(cmd *cobra.Command, arg string) (string, error) {
	t := job.ParseTarget(arg)
	if t.VM != "" {
		return "", usagef("%s is a VM, and %s is about a whole cluster: write %s", arg, cmd.Name(), t.Cluster)
	}
	return t.Cluster, nil
}

// completeTarget completes a first argument NAME[/VM]: VMs are offered once NAME is the name of a cluster.
func completeTarget(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeOneTarget(cmd, nil, typed)
}

// completeOneTarget completes NAME[/VM] at any position.
func completeOneTarget(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	name, _, slash := strings.Cut(typed, "/")
	var offers []string
	if !slash {
		offers, _ = completeClusters(cmd, nil, typed)
	}
	if name == "" && !slash {
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
	if r, err := state.Find(name); err == nil {
		for _, vm := range vmNames(r) {
			offers = append(offers, name+"/"+vm)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}

// completePlace completes FROM and TO of cp: NAME/VM: for a path in a VM, or a file of this host.
func completePlace(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.ContainsAny(typed, ":") || strings.HasPrefix(typed, ".") || strings.HasPrefix(typed, "/") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	offers, _ := completeOneTarget(cmd, nil, typed)
	for i, o := range offers {
		o, _, _ = strings.Cut(o, "\t")
		end := "/"
		if strings.Contains(o, "/") {
			end = ":"
		}
		offers[i] = o + end
	}
	if len(offers) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return offers, cobra.ShellCompDirectiveNoSpace
}
