package bed

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Accounting is the database of a cluster's jobs, for sacct: mariadbd on a socket that only root
// reaches, and slurmdbd. scripts/install.sh sacct installs both.

// startAccounting starts mariadbd and slurmdbd, and adds the cluster to the latter.
func (b *Bed) startAccounting() error {
	data := b.Path("db/data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(b.Path("db"), 0o700); err != nil {
		return err
	}
	// The tables of the server's own, which its installer would make (mariadb-install-db).
	tables := "create database mysql;\nuse mysql;\n"
	for _, f := range []string{"mysql_system_tables.sql", "mysql_system_tables_data.sql"} {
		text, err := os.ReadFile("/usr/share/mysql/" + f)
		if err != nil {
			return fmt.Errorf("%w: run scripts/install.sh sacct", err)
		}
		tables += string(text) + "\n"
	}
	server, err := find("mariadbd")
	if err != nil {
		return err
	}
	common := []string{"--no-defaults", "--user=root", "--datadir=" + data, "--innodb-buffer-pool-size=64M", "--skip-log-bin"}
	boot := exec.Command(server, append(common, "--bootstrap")...)
	boot.Stdin = strings.NewReader(tables)
	if out, err := boot.CombinedOutput(); err != nil {
		return fmt.Errorf("mariadbd --bootstrap: %w: %s", err, out)
	}
	if b.db, err = b.daemon("mariadbd", "mariadbd", append(common, "--socket="+b.dbSocket(), "--pid-file="+b.Path("db/pid"),
		"--skip-networking", "--skip-grant-tables")...); err != nil {
		return err
	}
	if err := Await("mariadbd's socket", func() bool { _, err := os.Stat(b.dbSocket()); return err == nil }); err != nil {
		return err
	}
	conf := fmt.Sprintf(`AuthType=auth/munge
AuthInfo=socket=%[1]s
DbdHost=localhost
DbdPort=%[2]d
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
PidFile=%[3]s/run/slurmdbd.pid
LogFile=%[3]s/log/slurmdbd.log
`, b.socket(), b.dbdPort(), b.Dir)
	if err := os.WriteFile(b.Path("slurmdbd.conf"), []byte(conf), 0o600); err != nil {
		return err
	}
	if b.dbd, err = b.daemon("slurmdbd", "slurmdbd", "-D"); err != nil {
		return err
	}
	var out []byte
	if err := Await("slurmdbd", func() bool {
		out, err = b.Command("sacctmgr", "-i", "add", "cluster", "nearmetal").CombinedOutput()
		return err == nil
	}); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (b *Bed) stopAccounting() {
	for _, d := range []*daemon{b.dbd, b.db} {
		if d != nil {
			d.stop(syscall.SIGTERM)
		}
	}
}

func (b *Bed) dbSocket() string { return b.Path("db/sock") }

func (b *Bed) dbdPort() int { return b.port + max(b.o.Nodes, 1) + 1 }

// accountingConf is what slurm.conf says of it.
func (b *Bed) accountingConf() string {
	if !b.o.Accounting {
		return ""
	}
	return fmt.Sprintf("AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\nAccountingStoragePort=%d\nAccountingStoragePass=%s\n",
		b.dbdPort(), b.socket())
}
