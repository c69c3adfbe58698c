package main

import (
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/spec"
)

// target is what commands are about: a cluster, or one VM of it, written NAME or NAME/VM. A name left out
// is that of $NEARMETAL_CLUSTER, or of the only cluster that runs.
type target struct{ cluster, vm string }

// parseTarget reads NAME, NAME/VM or /VM; "" is the zero target.
func parseTarget(s string) target {
	name, vm, _ := strings.Cut(s, "/")
	if name != "" && spec.CheckName(name) != nil {
		return target{cluster: s} // no cluster's name: whoever looks for it says so
	}
	return target{name, vm}
}

// vmTarget reads the target of a command that takes [NAME[/VM]] and --vm, the older form of its second half.
func vmTarget(args []string, vm string) (target, error) {
	t := parseTarget(firstArg(args))
	switch {
	case vm == "" || t.vm == vm:
	case t.vm != "":
		return t, usagef("%s and --vm %s name two VMs: leave one out", args[0], vm)
	default:
		t.vm = vm
	}
	return t, nil
}

// clusterTarget reads the target of a command that is about whole clusters.
func clusterTarget(cmd *cobra.Command, arg string) (string, error) {
	t := parseTarget(arg)
	if t.vm != "" {
		return "", usagef("%s is a VM, and %s is about a whole cluster: write %s", arg, cmd.Name(), t.cluster)
	}
	return t.cluster, nil
}

// beforeCommand takes the target off the arguments of exec, [NAME[/VM] --] COMMAND [ARG...]. A word that is no
// target may stand before "--" as well, as it always could: it is a program then.
func beforeCommand(args []string) (t target, command []string, err error) {
	if len(args) > 2 && args[2] == "--" {
		if r, err := state.Find(args[0]); err == nil {
			if _, err := r.FindVM(args[1]); err == nil {
				return t, nil, usagef("a VM of a cluster is NAME/VM: write exec %s/%s -- COMMAND", args[0], args[1])
			}
		}
	}
	if len(args) < 2 || args[1] != "--" {
		return t, args, forgotten(args)
	}
	name, vm, slash := strings.Cut(args[0], "/")
	if name != "" && spec.CheckName(name) != nil || strings.Contains(vm, "/") || slash && vm == "" {
		return t, args, nil
	}
	if _, err := state.Find(name); err != nil {
		if _, no := exec.LookPath(args[0]); no == nil {
			return t, args, nil
		}
		if _, no := os.Stat(args[0]); no == nil {
			return t, args, nil
		}
		return t, nil, err
	}
	if len(args) == 2 {
		return t, nil, usagef("exec needs at least one COMMAND")
	}
	return target{name, vm}, args[2:], nil
}

// forgotten returns an error where args begin with a VM of a cluster that runs, with no "--" behind it, and no program of
// that name is there.
func forgotten(args []string) error {
	name, vm, slash := strings.Cut(firstArg(args), "/")
	if !slash || vm == "" || name != "" && spec.CheckName(name) != nil {
		return nil
	}
	r, err := state.Find(name)
	if err != nil {
		return nil
	}
	if _, err := r.FindVM(vm); err != nil {
		return nil
	}
	if _, err := os.Stat(args[0]); err == nil {
		return nil
	}
	command := "COMMAND"
	if len(args) > 1 {
		command = args[1]
	}
	return usagef("%s is a VM: write exec %[1]s -- %[2]s", args[0], command)
}

// completeTarget completes a first argument NAME[/VM]: the VMs are offered once NAME is that of a cluster.
func completeTarget(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeOneTarget(cmd, nil, typed)
}

// completeOneTarget completes NAME[/VM] wherever it stands.
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

// completePlace completes FROM and TO of cp: NAME/VM: of a VM, or a file of this host.
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
