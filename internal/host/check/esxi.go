package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// Rows for an ESXi host: the steps of VMware's study that require a shell on that host. They read only by programs,
// which Options.Command runs there.

var onESXi = []Profile{ESXi}

// mellanox is the directory of the card's tools on ESXi.
const mellanox = "/opt/mellanox/bin/"

const connectXStudy = "VMware ConnectX study, section "

var esxiRows = []Row{
	{
		ID: "esxi.tools", Group: OnESXi, Title: "the card's firmware tools",
		Reads: "esxcli software vib list", Wants: "mft and nmst",
		Why:    "Without them the card's firmware settings can be neither read nor changed.",
		Source: connectXStudy + "2.2.1",
		Costs:  "the link types and virtual functions of the card stay as they are",
		Fix:    "esxcli software vib install -d /vmfs/volumes/DATASTORE/BUNDLE.zip for mft and for nmst",
		Needs:  Reboot, Profiles: onESXi,
		look:     func(f *facts) finding { return f.hasVIBs("mft", "nmst") },
		commands: installs("mft", "nmst"),
	},
	{
		ID: "esxi.driver", Group: OnESXi, Title: "ESXi's own driver of ConnectX cards",
		Reads: "esxcli software vib list", Wants: "nmlx5-core",
		Why:    "It makes the virtual functions, and the host sends over the card by it.",
		Source: connectXStudy + "2.2.2",
		Costs:  "no virtual functions, and no card for the host's own switches",
		Fix:    "esxcli software vib install -d /vmfs/volumes/DATASTORE/BUNDLE.zip",
		Needs:  Reboot, Profiles: onESXi,
		look:     func(f *facts) finding { return f.hasVIBs("nmlx5-core") },
		commands: installs("nmlx5-core"),
	},
	{
		ID: "esxi.firmware", Group: OnESXi, Title: "virtual functions in the card's firmware",
		Reads: mellanox + "mst status; " + mellanox + "mlxconfig -d DEVICE query", Wants: "SRIOV_EN=1 and NUM_OF_VFS above 0",
		Why:      "The card offers virtual functions as its firmware is set, whatever the driver wants.",
		Source:   connectXStudy + "2.2.3; NVIDIA's manual of the ESXi driver, SR-IOV",
		Costs:    "no virtual functions",
		Fix:      mellanox + "mlxconfig -d DEVICE -y set SRIOV_EN=1 NUM_OF_VFS=8",
		Needs:    Setup,
		Profiles: onESXi,
		Conflict: "the study sets SRIOV_EN=0 and ADVANCED_PCI_SETTINGS=0, since its VMs have whole cards",
		look: func(f *facts) finding {
			items, err := f.esxiCards(func(name string, now, next map[string]string) Item { return judgeSettings(name, next) })
			if err != nil {
				return found(Unknown, "%s", err)
			}
			return worst(items, found(NotApplicable, "no Mellanox card"))
		},
		commands: func(f *facts, _ []string) (list []Command) {
			f.esxiCards(func(name string, now, next map[string]string) Item {
				if item := judgeSettings(name, next); item.Status != Warn {
					return item
				}
				set := mellanox + "mlxconfig -d " + name + " -y set "
				c := Command{Run: set + "SRIOV_EN=1 NUM_OF_VFS=8"}
				if on, vfs := plainValue(next["SRIOV_EN"]), plainValue(next["NUM_OF_VFS"]); on != "" && vfs != "" {
					c.Undo = set + "SRIOV_EN=" + on + " NUM_OF_VFS=" + vfs
				}
				list = append(list, c)
				return Item{}
			})
			return list
		},
	},
	{
		ID: "esxi.link", Group: OnESXi, Title: "InfiniBand or Ethernet, by port",
		Reads: mellanox + "mlxconfig -d DEVICE query: LINK_TYPE_P1, LINK_TYPE_P2", Wants: "what the switch at the port speaks",
		Why:    "A port that speaks another protocol than its switch has no link.",
		Source: connectXStudy + "2.2.3",
		Costs:  "no link",
		Fix:    mellanox + "mlxconfig -d DEVICE -y set LINK_TYPE_P1=1 (1 is InfiniBand, 2 Ethernet)",
		Needs:  Setup, Profiles: onESXi,
		look: func(f *facts) finding {
			items, err := f.esxiCards(func(name string, now, next map[string]string) Item {
				var list []string
				for _, key := range []string{"LINK_TYPE_P1", "LINK_TYPE_P2"} {
					if v := next[key]; v != "" {
						list = append(list, key+"="+v)
					}
				}
				if len(list) == 0 {
					return Item{name, NotApplicable, "one link type"}
				}
				return Item{name, OK, strings.Join(list, " ")}
			})
			if err != nil {
				return found(Unknown, "%s", err)
			}
			return worst(items, found(NotApplicable, "no Mellanox card"))
		},
	},
	{
		ID: "esxi.max-vfs", Group: OnESXi, Title: "virtual functions of ESXi's own driver",
		Reads: "esxcli system module parameters list -m nmlx5_core", Wants: "max_vfs above 0",
		Why:      "The driver makes as many virtual functions at boot. nearmetal vsphere sriov sets them through vCenter.",
		Source:   connectXStudy + "2.2.3; NVIDIA's manual of the ESXi driver, module parameters",
		Costs:    "no virtual functions",
		Fix:      `esxcli system module parameters set -m nmlx5_core -p "max_vfs=8"`,
		Needs:    Reboot,
		Profiles: onESXi,
		Conflict: `the study sets -p "", since its VMs have whole cards`,
		look: func(f *facts) finding {
			p, err := f.moduleParameters()
			if err != nil {
				return found(Unknown, "%s", err)
			}
			v := p["max_vfs"]
			if strings.Trim(v, "0,") == "" {
				return found(Warn, "max_vfs=%s", v)
			}
			return found(OK, "max_vfs=%s", v)
		},
		commands: func(f *facts, _ []string) []Command {
			p, err := f.moduleParameters()
			if err != nil {
				return nil
			}
			was := joinParameters(p)
			p["max_vfs"] = "8"
			set := "esxcli system module parameters set -m nmlx5_core -p " // the call replaces all of them
			return []Command{{Run: set + `"` + joinParameters(p) + `"`, Undo: set + `"` + was + `"`}}
		},
	},
	{
		ID: "esxi.reboot", Group: OnESXi, Title: "nothing waits for a boot",
		Reads: "esxcli software vib list --rebooting-image; " + mellanox + "mlxconfig -d DEVICE -e query", Wants: "no packages and no firmware settings that the next boot brings",
		Why:    "Packages and firmware settings are in force after a boot.",
		Source: connectXStudy + "2.2 (three boots)",
		Costs:  "what was set is not in force",
		Fix:    "esxcli system shutdown reboot -r nearmetal, in maintenance mode",
		Needs:  Reboot, Profiles: onESXi,
		look: func(f *facts) finding {
			var waits []string
			if out, err := f.ask("esxcli", "software", "vib", "list", "--rebooting-image"); err == nil && len(vibs(out)) > 0 {
				waits = append(waits, "packages")
			}
			_, err := f.esxiCards(func(name string, now, next map[string]string) Item {
				var keys []string
				for key, v := range next {
					if now[key] != "" && now[key] != v {
						keys = append(keys, key)
					}
				}
				if sort.Strings(keys); len(keys) > 0 {
					waits = append(waits, name+": "+strings.Join(keys, " "))
				}
				return Item{}
			})
			switch {
			case len(waits) > 0:
				return found(Warn, "%s", strings.Join(waits, "; "))
			case err != nil:
				return found(Unknown, "%s", err)
			}
			return found(OK, "nothing does")
		},
		commands: func(f *facts, _ []string) []Command {
			return []Command{{Run: "esxcli system shutdown reboot -r nearmetal", Named: true, Only: maintenance}}
		},
	},
}

// maintenance returns the reason why a host must not be rebooted now; nil: it may be.
func maintenance(f *facts) error {
	out, err := f.ask("esxcli", "system", "maintenanceMode", "get")
	if err == nil && strings.TrimSpace(out) != "Enabled" {
		err = errors.New("the host is not in maintenance mode: move its VMs, and put it there by vCenter")
	}
	return err
}

// Command is a command that fixes a row in a shell of the host.
type Command struct {
	Run  string
	Undo string // "": it cannot be undone
	// Named: the command is run only if the row was named.
	Named bool
	// Only returns the reason why it must not be run now; nil: it may be.
	Only func(*facts) error
}

// HostFix are a row's commands.
type HostFix struct {
	Row      Result
	Commands []Command // none: a manual fix, see Row.Fix
	Why      error     // reason why they must not be run now
}

// HostFixes returns the commands of the rows that warn or fail, in their order. bundles are files on the host with
// the packages that a row lacks.
func HostFixes(ctx context.Context, o Options, r *Report, bundles []string) ([]HostFix, error) {
	f, err := newFacts(ctx, o)
	if err != nil {
		return nil, err
	}
	defer f.close()
	var list []HostFix
	for _, res := range r.Rows {
		i := slices.IndexFunc(rows, func(row Row) bool { return row.ID == res.ID })
		if i < 0 || res.Status != Warn && res.Status != Fail {
			continue
		}
		fix := HostFix{Row: res}
		if rows[i].commands != nil {
			fix.Commands = rows[i].commands(f, bundles)
		}
		for _, c := range fix.Commands {
			if c.Only != nil && fix.Why == nil {
				fix.Why = c.Only(f)
			}
		}
		list = append(list, fix)
	}
	return list, nil
}

// BundleRows are the rows that packages fix.
var BundleRows = []string{"esxi.tools", "esxi.driver"}

var bundleName = lazyregexp.New(`^/vmfs/volumes/[A-Za-z0-9._/-]+\.(zip|vib)$`)

// CheckBundle returns the fault of the name of a file of packages on an ESXi host, or nil.
func CheckBundle(name string) error {
	if !bundleName().MatchString(name) {
		return fmt.Errorf("%.80q is not /vmfs/volumes/DATASTORE/FILE.zip, or .vib", name)
	}
	return nil
}

// installs returns the commands that install files of packages; the undo removes the packages that were not installed
// before.
func installs(names ...string) func(*facts, []string) []Command {
	return func(f *facts, bundles []string) (list []Command) {
		for _, b := range bundles {
			flag := "-d "
			if strings.HasSuffix(b, ".vib") {
				flag = "-v "
			}
			list = append(list, Command{Run: "esxcli software vib install " + flag + b})
		}
		out, err := f.ask("esxcli", "software", "vib", "list")
		if len(list) == 0 || err != nil {
			return list
		}
		have := vibs(out)
		for _, n := range names {
			if have[n] == "" {
				list[len(list)-1].Undo += " -n " + n
			}
		}
		if u := &list[len(list)-1].Undo; *u != "" {
			*u = "esxcli software vib remove" + *u
		}
		return list
	}
}

// hasVIBs judges whether packages are installed.
func (f *facts) hasVIBs(names ...string) finding {
	out, err := f.ask("esxcli", "software", "vib", "list")
	if err != nil {
		return found(Unknown, "%s", printable(err.Error()))
	}
	have := vibs(out)
	var items []Item
	for _, n := range names {
		v, ok := have[n]
		if !ok {
			items = append(items, Item{n, Warn, "not installed"})
			continue
		}
		items = append(items, Item{n, OK, v})
	}
	return worst(items, found(Unknown, "no package was asked for"))
}

// vibs parses the output of esxcli software vib list: versions by name.
func vibs(out string) map[string]string {
	list := map[string]string{}
	below := false
	for _, line := range strings.Split(out, "\n") {
		w := strings.Fields(line)
		if below && len(w) >= 2 && len(list) < 4096 {
			list[printable(w[0])] = printable(w[1])
		}
		below = below || strings.HasPrefix(line, "---")
	}
	return list
}

var mstDevice = lazyregexp.New(`\bmt\d+_pciconf\d+\b`)

// esxiCards calls look with the firmware settings of each card: the current ones, if the tools report them, and those
// after the next boot.
func (f *facts) esxiCards(look func(name string, now, next map[string]string) Item) ([]Item, error) {
	out, err := f.ask(mellanox+"mst", "status")
	if err != nil {
		return nil, fmt.Errorf("mst status (of mft and nmst): %s", printable(err.Error()))
	}
	var items []Item
	names := mstDevice().FindAllString(out, 64)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		out, err := f.ask(mellanox+"mlxconfig", "-d", name, "-e", "query")
		if err != nil {
			items = append(items, Item{name, Unknown, "mlxconfig: " + printable(err.Error())})
			continue
		}
		now, next := parseMlxconfig(out)
		items = append(items, look(name, now, next))
	}
	return items, nil
}

// parseMlxconfig parses lines "NAME DEFAULT CURRENT NEXT" of mlxconfig -e query.
func parseMlxconfig(out string) (now, next map[string]string) {
	now, next = map[string]string{}, map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		w := strings.Fields(strings.TrimLeft(line, "* \t"))
		if len(w) == 4 && strings.ToUpper(w[0]) == w[0] && len(next) < 4096 {
			now[printable(w[0])], next[printable(w[0])] = printable(w[2]), printable(w[3])
		}
	}
	return now, next
}

var plainNumber = lazyregexp.New(`^(?:[A-Za-z_]+\()?(\d{1,10})\)?$`)

// plainValue returns a setting in the form that mlxconfig accepts: True(1) is 1. "": it is not a number, and must not
// be used in a command.
func plainValue(v string) string {
	if m := plainNumber().FindStringSubmatch(v); m != nil {
		return m[1]
	}
	return ""
}

// moduleParameters reads the parameters of nmlx5_core that are set. The line below the heading marks the columns.
func (f *facts) moduleParameters() (map[string]string, error) {
	out, err := f.ask("esxcli", "system", "module", "parameters", "list", "-m", "nmlx5_core")
	if err != nil {
		return nil, errors.New(printable(err.Error()))
	}
	var from, to int
	set := map[string]string{}
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "---") {
			columns := dashes().FindAllStringIndex(line, -1)
			if len(columns) < 3 {
				break
			}
			from, to = columns[2][0], columns[2][1]
			continue
		}
		if to == 0 || len(line) < from {
			continue
		}
		name, _, _ := strings.Cut(line, " ")
		v := strings.TrimSpace(line[from:min(to, len(line))])
		if v == "" {
			continue
		}
		if !moduleValue().MatchString(name + "=" + v) { // an unparsed parameter would be lost
			return nil, fmt.Errorf("parameter %s of nmlx5_core is not understood", printable(name))
		}
		set[name] = v
	}
	if to == 0 {
		return nil, errors.New("esxcli's answer is not understood")
	}
	return set, nil
}

var dashes = lazyregexp.New(`-+`)

// moduleValue matches a parameter that can be used in a command.
var moduleValue = lazyregexp.New(`^[A-Za-z0-9_]{1,64}=[A-Za-z0-9_,.:-]{1,256}$`)

func joinParameters(set map[string]string) string {
	var list []string
	for name, v := range set {
		list = append(list, name+"="+v)
	}
	sort.Strings(list)
	return strings.Join(list, " ")
}

// esxiVersion returns the host's version; the error is the reason why it cannot be queried, or that the host does not
// run ESXi.
func (f *facts) esxiVersion() (string, error) {
	out, err := f.ask("esxcli", "system", "version", "get")
	if err != nil {
		return "", errors.New(printable(err.Error()))
	}
	var words []string
	for _, key := range []string{"Product: ", "Version: ", "Build: "} {
		for _, line := range strings.Split(out, "\n") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(line), key); ok {
				words = append(words, printable(strings.TrimSpace(v)))
			}
		}
	}
	if len(words) == 0 {
		return "", errors.New("esxcli's answer is not understood")
	}
	return strings.Join(words, " "), nil
}
