package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This machine's /dev, /proc and Slurm programs are not used for a described host, nor for a tree of a fleet's check.
func TestElsewhere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"slurm.conf": "ClusterName=x\nGresTypes=vf,region\nPropagateResourceLimitsExcept=MEMLOCK\nNodeName=n1 CPUs=96 Gres=vf:mlx5:2,region:96G\n",
		"gres.conf":  "NodeName=n1 Name=vf Type=mlx5 File=/dev/vfio/[31-32] Cores=0-23\nNodeName=n1 Name=region Count=96G\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	execute([]string{"slurm", "doctor", "--root", "../../test/topology/r740.machine", "--conf", filepath.Join(dir, "slurm.conf"), "--node", "n1"}, nil, &stdout, &stderr)
	for _, want := range []string{"unknown  version ", "ok       gres-conf ", "unknown  memlock ", "unknown  kvm "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s%s", want, &stdout, &stderr)
		}
	}
	stderr.Reset()
	if status := execute([]string{"check", "--root", dir, "--fleet", "hosts"}, nil, &stdout, &stderr); status != 2 || !strings.Contains(stderr.String(), "--from only reads one captured tree") {
		t.Errorf("status %d: %s", status, &stderr)
	}
}
