package bed

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// freePorts finds n free TCP ports in a row, which slurmctld and the slurmds get. It looks
// below the range that the kernel assigns by itself, and begins where another process that
// looks at the same time does not.
func freePorts(n int) (int, error) {
	for base := 10000 + os.Getpid()%1000*16; base < 30000; base += n + 3 {
		free := true
		for i := 0; i < n && free; i++ {
			ln, err := net.Listen("tcp", fmt.Sprint("0.0.0.0:", base+i))
			if free = err == nil; free {
				ln.Close()
			}
		}
		if free {
			return base, nil
		}
	}
	return 0, errUsed
}

// writeFiles writes the cluster's configuration.
func (b *Bed) writeFiles() error {
	proctrack, task := "proctrack/linuxproc", "task/affinity"
	if b.o.Cgroup {
		proctrack, task = "proctrack/cgroup", "task/cgroup,task/affinity"
	}
	gres, nodeGres := "", ""
	switch {
	case b.o.Gres != "":
		gres, nodeGres = "GresTypes=vf,region\n", " Gres="+b.o.Gres
	case b.o.RegionBytes != "":
		gres, nodeGres = "GresTypes=region\n", " Gres=region:"+b.o.RegionBytes
	}
	addrs := []string{b.address(1)}
	for i := 2; b.o.Networks && i <= b.o.Nodes; i++ {
		addrs = append(addrs, b.address(i))
	}
	conf := fmt.Sprintf(`ClusterName=nearmetal
SlurmctldHost=%[1]s(%[15]s)
SlurmctldPort=%[2]d
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=%[3]s
StateSaveLocation=%[4]s/state
SlurmdSpoolDir=%[4]s/spool/%%n
SlurmctldPidFile=%[4]s/run/slurmctld.pid
SlurmdPidFile=%[4]s/run/slurmd.%%n.pid
SlurmctldLogFile=%[4]s/log/slurmctld.log
SlurmdLogFile=%[4]s/log/slurmd.%%n.log
PlugStackConfig=%[4]s/plugstack.conf
ProctrackType=%[5]s
TaskPlugin=%[6]s
PrologFlags=Alloc,Contain,DeferBatch
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=500
KillWait=2
SlurmdParameters=config_overrides
PropagateResourceLimitsExcept=MEMLOCK
TmpFS=%[4]s/tmpfs/%%n
SchedulerParameters=sched_min_interval=10000,bf_interval=1,batch_sched_delay=0
MpiDefault=%[17]s
%[7]s%[8]sNodeName=n[1-%[9]d] NodeHostname=%[1]s NodeAddr=%[16]s Port=[%[10]d-%[11]d] Sockets=1 CoresPerSocket=%[12]d ThreadsPerCore=1 RealMemory=%[13]d%[14]s
PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES MaxTime=30
`, b.host, b.port, b.socket(), b.Dir, proctrack, task, gres, b.accountingConf()+b.o.Extra, b.o.Nodes, b.port+1, b.port+b.o.Nodes, b.o.CPUs, b.o.MemoryMB, nodeGres,
		b.address(thisHost), strings.Join(addrs, ","), cmp.Or(b.o.MPI, "none"))
	if b.o.Site != "" {
		conf = b.siteConf()
	}
	files := map[string]string{"slurm.conf": conf, "plugstack.conf": b.o.Plugstack}
	if b.o.RegionBytes != "" {
		files["gres.conf"] = fmt.Sprintf("Name=region Count=%s\n", b.o.RegionBytes)
	}
	if b.o.Cgroup {
		files["cgroup.conf"] = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
	}
	if b.o.CgroupV2 {
		files["cgroup.conf"] = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainRAMSpace=yes\n"
	}
	for name, text := range b.o.Files {
		files[name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(b.Path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Plugstack is a plugstack.conf that loads the plugin of a build directory, which keeps
// its state below state. No plugin: an empty build.
func Plugstack(build, state string, more ...string) string {
	if build == "" {
		return ""
	}
	// Most jobs of the tests are root's.
	line := fmt.Sprintf("required %s/c/slurm/spank_nearmetal.so nearmetal=%s/nearmetal state=%s root_writes=yes", build, build, state)
	for _, m := range more {
		line += " " + m
	}
	return line + "\n"
}

// siteConf is the site's slurm.conf with this cluster's own places: of a key that stands twice, the last holds.
func (b *Bed) siteConf() string {
	return b.o.Site + fmt.Sprintf(`SlurmctldPort=%[1]d
SlurmdPort=%[2]d
AuthInfo=socket=%[3]s
StateSaveLocation=%[4]s/state
SlurmdSpoolDir=%[4]s/spool
SlurmctldPidFile=%[4]s/run/slurmctld.pid
SlurmdPidFile=%[4]s/run/slurmd.pid
SlurmctldLogFile=%[4]s/log/slurmctld.log
SlurmdLogFile=%[4]s/log/slurmd.log
PlugStackConfig=%[4]s/plugstack.conf
`, b.port, b.port+1, b.socket(), b.Dir)
}

// giveToSlurm hands directories to the user slurm, who slurmctld becomes.
func (b *Bed) giveToSlurm(dirs ...string) error {
	u, err := user.Lookup("slurm")
	if err != nil {
		return err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	errs := []error{err1, err2}
	for _, d := range dirs {
		errs = append(errs, os.Chown(b.Path(d), uid, gid))
	}
	return errors.Join(errs...)
}
