package job

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPrompt: a shell for a cluster marks its prompt, also if its files set one.
func TestPrompt(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(home+"/.bashrc", []byte("PS1='mine> '\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for shell, want := range map[string]string{"bash": "(nearmetal demo) mine> ", "sh": "(nearmetal demo) $ "} {
		cmd := exec.Command(shell, "-i")
		cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, prompt(shell, "demo")...)
		cmd.Stdin = strings.NewReader("true\ntrue\nexit\n")
		out, _ := cmd.CombinedOutput()
		if strings.Count(string(out), want) < 2 || strings.Contains(string(out), "demo) (nearmetal") {
			t.Errorf("%s: %q", shell, out)
		}
	}
	if got := prompt("fish", "demo"); got != nil {
		t.Errorf("%q", got)
	}
}
