package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The shell beside a Slurm of its own shows so in its prompt, also where the user's files set one.
func TestPrompt(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(home+"/.bashrc", []byte("PS1='mine> '\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-i")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), prompt}
	cmd.Stdin = strings.NewReader("true\ntrue\nexit\n")
	out, _ := cmd.CombinedOutput()
	if strings.Count(string(out), "(slurm-shell) mine> ") < 2 || strings.Contains(string(out), "(slurm-shell) (slurm-shell)") {
		t.Errorf("%q", out)
	}
}
