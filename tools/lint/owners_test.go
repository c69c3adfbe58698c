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
	if err != nil || len(got) != 4 || !strings.HasPrefix(got[0], "fabric/proto/send.c:2: writes") || !strings.HasPrefix(got[1], "fabric/proto/send.c:3: writes") ||
		!strings.HasPrefix(got[2], "ucx/peer.c:1: writes") || !strings.HasPrefix(got[3], "ucx/peer.c:3: writes") {
		t.Errorf("got %q, %v", got, err)
	}
}
