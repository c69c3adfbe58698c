package launch

import (
	"fmt"
	"strconv"
	"strings"
)

// Options of launchers with one or two values that may precede -n. A word that begins with a hyphen and is in neither
// table makes Ranks give up.
var (
	oneValue = words(`-f -hostfile -machinefile -machine -host -hosts -H -wdir -wd -path -x -ppn -perhost -grr -N
		-npernode -npersocket -map-by -rank-by -bind-to -launcher -launcher-exec -bootstrap -bootstrap-exec -iface
		-localhost -rmk -prepend-rank-with -envlist -genvlist -outfile-pattern -errfile-pattern -output-filename -stdin
		-tune -am -prefix -timeout -max-restarts -app -configfile -default-hostfile -rf -rankfile -usize -topolib
		-demux -order-nodes -profile -output -runtime-options -display -personality -launch-agent -fwd-signals -report-pid
		-report-uri -gpus-per-proc -ord -membind`)
	twoValues = words(`-mca -gmca -omca -prtemca -pmixmca -gpmixmca -env -genv`)
	noValue   = words(`-v -V -verbose -q -quiet -l -prepend-rank -tag-output -timestamp-output -bind-to-core -bind-to-none
		-bind-to-socket -bynode -byslot -bycore -oversubscribe -nooversubscribe -no-oversubscribe -use-hwthread-cpus
		-allow-run-as-root -display-map -display-allocation -report-bindings -merge-stderr-to-stdout -xml -info
		-genvall -genvnone -envall -envnone -enable-x -disable-x -disable-auto-cleanup -disable-hostname-propagation
		-enable-hostname-propagation -print-all-exitcodes -debug-daemons -leave-session-attached -do-not-resolve
		-nolocal -pernode -tree-spawn -skip-launch-node -index-map -report-state-on-timeout -get-stack-traces`)
	count = words(`-n -np -c`)
)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// Ranks returns the number of ranks that a launcher's command line (argv, with the program's name) requests; with
// several programs (":" between them) their sum. ok is false if the command line does not state it: the launcher then
// decides, usually by the slots of the host file.
func Ranks(argv []string) (n int, ok bool) {
	if len(argv) == 0 {
		return 0, false
	}
	args := argv[1:]
	for {
		k, found := ranksOfOne(args)
		if !found {
			return 0, false
		}
		n += k
		i := 0
		for i < len(args) && args[i] != ":" {
			i++
		}
		if i == len(args) {
			return n, true
		}
		args = args[i+1:]
	}
}

// ranksOfOne parses the options before one program.
func ranksOfOne(args []string) (int, bool) {
	for i := 0; i < len(args); {
		a := args[i]
		if len(a) < 2 || a[0] != '-' {
			return 0, false // the program
		}
		name, value, joined := strings.Cut(a, "=")
		if strings.HasPrefix(name, "--") {
			name = name[1:]
		}
		switch {
		case count[name]:
			if !joined {
				if i+1 >= len(args) {
					return 0, false
				}
				value = args[i+1]
			}
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 1<<24 {
				return 0, false
			}
			return n, true
		case joined && (oneValue[name] || noValue[name]), noValue[name]:
			i++
		case oneValue[name]:
			i += 2
		case twoValues[name]:
			i += 3
		default:
			return 0, false
		}
	}
	return 0, false
}

// CrowdedWarning returns a line to print if more ranks are requested than the VMs have vCPUs; empty: none.
func CrowdedWarning(argv []string, hosts []Host) string {
	n, ok := Ranks(argv)
	slots := 0
	for _, h := range hosts {
		slots += h.Slots
	}
	if !ok || n <= slots {
		return ""
	}
	return fmt.Sprintf("%d ranks on %d vCPUs of %d VMs: ranks will wait for each other; more vCPUs: --vcpus, --vms", n, slots, len(hosts))
}
