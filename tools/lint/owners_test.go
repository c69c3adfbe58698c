package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwnersOf(t *testing.T) {
	top := t.TempDir()
	for name, text := range map[string]string{
		"fabric/ring/ring.c":  "r->tx_head += 1;\nh->ring.x = 1;\n",
		"fabric/proto/send.c": "if (p->ring.tx_head == p->ring.tx_tail && ep->home.slot <= 1)\n\tp->ring.rx_head += lines;\n++p->ring.used;\n",
		"fabric/remote/a.c":   "p->core.sent++;\nif (p->proto.pid)\n\tep->proto.shown.left = 0;\nce->core->reads = true;\n",
		"fabric/ofi/ep.c":     "if (p->proto.pid == 1 || p->core.sent)\n\tp->core.knock = -1;\n",
		"ucx/peer.c":          "peer->ivs.ring.tx_ring = NULL;\nuint32_t n = i->ep.home.slot;\ni->ep.home.pool.pages[0]--;\n",
	} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ownersOf(top)
	want := []string{"fabric/ofi/ep.c:2: writes", "fabric/proto/send.c:2: writes", "fabric/proto/send.c:3: writes", "fabric/remote/a.c:2: names",
		"fabric/remote/a.c:3: writes", "ucx/peer.c:1: writes", "ucx/peer.c:3: writes"}
	if err != nil || len(got) != len(want) {
		t.Fatalf("got %q, %v", got, err)
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("got %q, want %q", got[i], w)
		}
	}
}
