package image

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// companions are modules that create an RDMA device, or a network interface, on a device that another module drives.
// They are used if the kernel has them. Tools such as ibstat and smpquery query InfiniBand ports by ib_umad.
var companions = map[string][]string{
	"mlx4_core": {"mlx4_en", "mlx4_ib", "ib_uverbs", "rdma_ucm", "ib_ipoib", "ib_umad"},
	"mlx5_core": {"mlx5_ib", "ib_uverbs", "rdma_ucm", "ib_ipoib", "ib_umad"},
	"bnxt_en":   {"bnxt_re", "ib_uverbs", "rdma_ucm"},
	"cxgb4":     {"iw_cxgb4", "ib_uverbs", "rdma_ucm"},
	"ice":       {"irdma", "ib_uverbs", "rdma_ucm"},
	"iavf":      {"irdma", "ib_uverbs", "rdma_ucm"},
	"qede":      {"qedr", "ib_uverbs", "rdma_ucm"},
	"hfi1":      {"ib_uverbs", "rdma_ucm", "ib_ipoib", "ib_umad"},
	"efa":       {"ib_uverbs", "rdma_ucm"},
}

// maxAlias bounds a modalias, in bytes.
const maxAlias = 200

// drivers returns the modules that drive devices, with their companions. It fails for a device without a driver in
// this kernel, which a VM could not use.
func (ix *moduleIndex) drivers(aliases []string) ([]string, error) {
	if len(aliases) == 0 || ix.kernel.Modules == "" {
		return nil, nil
	}
	p := filepath.Join(ix.kernel.Modules, "modules.alias")
	f, err := openRegular(p)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", ix.kernel.Version, err)
	}
	defer f.Close()
	found, err := matchAliases(io.LimitReader(f, maxIndex), aliases)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	var list []string
	for _, a := range aliases {
		if len(found[a]) == 0 {
			return nil, fmt.Errorf("kernel %s has no driver for the device %.60s: install the rest of its modules, or take another kernel with --kernel", ix.kernel.Version, a)
		}
		for _, m := range found[a] {
			list = append(list, m)
			for _, c := range companions[m] {
				if _, ok := ix.files[c]; ok || ix.builtin[c] {
					list = append(list, c)
				}
			}
		}
	}
	return list, nil
}

// matchAliases returns for each device the modules whose patterns it matches (modules.alias: "alias PATTERN MODULE";
// patterns as in fnmatch(3), and a modalias contains no slash).
func matchAliases(r io.Reader, aliases []string) (map[string][]string, error) {
	found := map[string][]string{}
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for sc.Scan() {
		w := strings.Fields(sc.Text())
		if len(w) != 3 || w[0] != "alias" {
			continue
		}
		bus, _, _ := strings.Cut(w[1], ":")
		for _, a := range aliases {
			if len(a) > maxAlias || !strings.HasPrefix(a, bus+":") {
				continue
			}
			if ok, err := path.Match(w[1], a); err == nil && ok && versionOK(w[2]) {
				found[a] = append(found[a], strings.ReplaceAll(w[2], "-", "_"))
			}
		}
	}
	return found, sc.Err()
}
