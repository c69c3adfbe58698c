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

// beforeCommand splits the arguments of exec, [NAME[/VM] [--]] COMMAND [ARG...], into target and command. The first word
// is a target if a cluster of that name runs (and has that VM), or if "--" follows. Otherwise it is the command. A
// command that has "--" before it, or a cluster named by -c (named), begins with the first word.
func beforeCommand(args []string, dash int, named bool) (t target, command []string, err error) {
	marked := len(args) > 1 && args[1] == "--"
	if dash == 0 || named && !marked {
		return t, args, nil
	}
	name, vm, slash := strings.Cut(args[0], "/")
	if name != "" && spec.CheckName(name) != nil || strings.Contains(vm, "/") || slash && vm == "" {
		return t, args, nil
	}
	r, err := state.Find(name)
	other := err != nil || name == "" // it may well be no target
	if err == nil && vm != "" {
		_, err = r.FindVM(vm)
	}
	if err != nil {
		switch {
		case program(args[0]):
			return t, args, nil
		case marked || !other:
			return t, nil, err
		case len(args) > 1 && name != "":
			if _, none := state.Find(""); none != nil { // no VM could run the command
				return t, nil, err
			}
		}
		return t, args, nil
	}
	rest := args[1:]
	if marked {
		rest = args[2:]
	} else if len(args) > 2 && args[2] == "--" {
		if _, err := r.FindVM(args[1]); err == nil {
			return t, nil, usagef("a VM of a cluster is NAME/VM: write exec %s/%s -- COMMAND", args[0], args[1])
		}
	}
	if len(rest) == 0 {
		return t, nil, usagef("%s is %s: exec needs a COMMAND after it (exec -- %[1]s runs a program of that name)", args[0], kindOf(vm))
	}
	return target{name, vm}, rest, nil
}

// kindOf names what a target is.
func kindOf(vm string) string {
	if vm == "" {
		return "a cluster"
	}
	return "a VM"
}

// program reports whether a word is a program of this host, by PATH or as a path.
func program(word string) bool {
	if _, err := exec.LookPath(word); err == nil {
		return true
	}
	_, err := os.Stat(word)
	return err == nil
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
