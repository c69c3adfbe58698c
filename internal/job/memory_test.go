package job

import "testing"

func TestKilledForMemory(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                  false,
		"nr_free_pages 5\noom_kill 0\n":     false,
		"nr_free_pages 5\noom_kill 2\nx 1":  true,
		"oom_kill 18446744073709551615":     true,
		"oom_kill 18446744073709551616\n":   false,
		"oom_kill -1\n":                     false,
		"my_oom_kill 3\noom_kill_other 3\n": false,
	} {
		if got := killedForMemory([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
