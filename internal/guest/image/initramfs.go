package image

import (
	"bytes"
	"fmt"
	"strings"
)

// Paths in the initramfs.
const (
	initPath   = "init"
	modulesDir = "nearmetal/ko/"     // the modules, NAME.ko
	orderPath  = "nearmetal/modules" // their absolute paths, one per line, in the order of loading
	configPath = "nearmetal/config"  // the configuration, which differs between VMs
)

// maxConfig bounds /nearmetal/config, in bytes.
const maxConfig = 1 << 20

// initramfs returns the base archive: the agent as /init, the modules and the devices that init needs first.
func initramfs(agent []byte, mods []module) ([]byte, error) {
	var out bytes.Buffer
	c := newCpio(&out)
	c.dir("dev")
	c.char("dev/console", 0o600, 5, 1) // the kernel opens it for init before anything is mounted
	c.char("dev/null", 0o666, 1, 3)
	c.char("dev/kmsg", 0o600, 1, 11)
	for _, d := range []string{"proc", "sys", "root"} {
		c.dir(d)
	}
	var order strings.Builder
	for _, m := range mods {
		b, err := m.read()
		if err != nil {
			return nil, err
		}
		c.file(modulesDir+m.name+".ko", 0o644, b)
		fmt.Fprintf(&order, "/%s%s.ko\n", modulesDir, m.name)
	}
	c.file(orderPath, 0o644, []byte(order.String()))
	c.file(initPath, 0o755, agent)
	if err := c.close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// configArchive returns the archive that follows the base for one VM.
func configArchive(config []byte) ([]byte, error) {
	if len(config) > maxConfig {
		return nil, fmt.Errorf("a VM's configuration of %d bytes: at most %d", len(config), maxConfig)
	}
	var out bytes.Buffer
	c := newCpio(&out)
	c.file(configPath, 0o600, config)
	if err := c.close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
