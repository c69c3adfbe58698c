package spec

import (
	"fmt"
	"slices"
)

// SetShares puts given shares over those of c, or over the default one, and makes all paths of c absolute below cwd.
// none leaves c's own and the default out. asRoot is as in ShareHome. The notice is a line for a user who may expect
// that the VMs write to cwd, where they cannot; "" if they can. The error is that of a given share.
func (c *Cluster) SetShares(given []Share, none bool, cwd string, asRoot bool) (notice string, err error) {
	asRoot = asRoot && !c.RootWrites
	var mine Share // the default one
	own := c.Shares == nil && !none
	if own || none {
		c.Shares = []Share{}
	}
	if own && c.Root == RootBackend { // it may have no files of this host's
		if len(given) == 0 {
			notice = fmt.Sprintf("warning: %s is not shared: with root: backend only what --share names is", cwd)
		}
	} else if own {
		if share, ok := DefaultShare(cwd); ok {
			mine = share
			if asRoot {
				mine.Mode = "ro"
			}
			c.Shares = append(c.Shares, mine)
		} else if len(given) == 0 {
			notice = fmt.Sprintf("warning: %s is not shared: files written there are lost; run elsewhere or use --share", cwd)
		}
	}
	c.Resolve(cwd)
	flags := &Cluster{Root: "host", Shares: given}
	flags.Resolve(cwd)
	if err := Validate(flags); err != nil {
		return "", err
	}
	for _, s := range flags.Shares {
		c.Shares = putShare(c.Shares, s)
	}
	if mine.Mode == "ro" && slices.Contains(c.Shares, mine) && !slices.Contains(flags.Shares, mine) {
		notice = readOnlyNotice(cwd, asRoot)
	}
	return notice, nil
}

// readOnlyNotice returns a line that the VMs cannot write in the working directory cwd, with the reason, which is that the
// caller is root or may not, and the remedy.
func readOnlyNotice(cwd string, root bool) string {
	if root {
		return "note: running as root: " + cwd + " is read-only in the VMs (--root-writes to change)"
	}
	return "note: you may not write in " + cwd + ": it is read-only in the VMs (--share .:ro leaves this line out)"
}

// putShare adds a share in the place of one with the same target.
func putShare(list []Share, s Share) []Share {
	for i := range list {
		if list[i].Target == s.Target {
			list[i] = s
			return list
		}
	}
	return append(list, s)
}
