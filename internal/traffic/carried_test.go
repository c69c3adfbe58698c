package traffic

import (
	"strings"
	"testing"
)

func TestWriteCarried(t *testing.T) {
	var b strings.Builder
	list := []Carried{{"vm0", "eth0", 2048, 1 << 20}, {"vm0", "eth1", 0, 0}, {"vm1", "mlx5_0/1", 1 << 20, 2048}}
	if err := WriteCarried(&b, list); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{"is not counted", "\nvm   interface  received   sent\n", "\nvm0       eth0     2 KiB  1 MiB\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "eth1") {
		t.Errorf("an interface that carried nothing is there:\n%s", got)
	}
	b.Reset()
	if WriteCarried(&b, nil); !strings.Contains(b.String(), "is not known either") {
		t.Errorf("%s", b.String())
	}
}
