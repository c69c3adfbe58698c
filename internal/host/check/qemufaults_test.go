package check

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestQEMUFaults: each fault is reported for the releases that have it, and for no others.
func TestQEMUFaults(t *testing.T) {
	for _, c := range []struct{ version, want string }{
		{"5.2.0", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861 CVE-2021-3748 CVE-2021-20181"},
		{"7.2.0", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861"},
		{"6.0.0", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861 CVE-2021-3748"},
		{"6.0.1", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861"},
		{"6.1.0", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861 CVE-2021-3748"},
		{"6.1.1", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861"},
		{"7.2.3", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861"},
		{"7.2.4", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693"},
		{"7.2.10", "CVE-2026-93834 CVE-2024-3446"},
		{"7.2.22", "CVE-2026-93834"},
		{"8.0.0", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693 CVE-2023-2861"},
		{"8.0.3", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693"},
		{"8.1.5", "CVE-2026-93834 CVE-2024-3446"},
		{"8.2.0", "CVE-2026-93834 CVE-2024-3446 CVE-2023-6693"},
		{"8.2.2", "CVE-2026-93834 CVE-2024-3446"},
		{"8.2.3", "CVE-2026-93834"},
		{"9.0.0", "CVE-2026-93834"},
		{"10.0.2", "CVE-2026-93834"},
		{"11.1.1", "CVE-2026-93834"},
		{"11.1.2", ""},
		{"11.2.0", ""},
	} {
		dir := t.TempDir()
		os.Mkdir(dir+"/proc", 0o755)
		r, err := Run(context.Background(), Options{Root: dir, Only: []string{"qemu.faults"}, Command: func(context.Context, string, ...string) ([]byte, error) {
			return []byte("QEMU emulator version " + c.version + " (Debian 1:7.2+dfsg-7)\n"), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, i := range r.Rows[0].Items {
			ids = append(ids, i.Name)
		}
		if got := strings.Join(ids, " "); got != c.want || (r.Rows[0].Status == OK) != (c.want == "") {
			t.Errorf("%s: %s, %q; want %q", c.version, r.Rows[0].Status, got, c.want)
		}
	}
}

// TestUserNamespaces: the setting that prevents users from making namespaces is named.
func TestUserNamespaces(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  Status
	}{
		{map[string]string{"user/max_user_namespaces": "1000"}, OK},
		{map[string]string{"user/max_user_namespaces": "0"}, Warn},
		{map[string]string{"user/max_user_namespaces": "1000", "kernel/unprivileged_userns_clone": "0"}, Warn},
		{map[string]string{"user/max_user_namespaces": "1000", "kernel/apparmor_restrict_unprivileged_userns": "1"}, Warn},
		{nil, Unknown},
	} {
		dir := t.TempDir()
		os.Mkdir(dir+"/proc", 0o755)
		for name, text := range c.files {
			path := filepath.Join(dir, "proc/sys", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Run(context.Background(), Options{Root: dir, Only: []string{"limits.userns"}})
		if err != nil || r.Rows[0].Status != c.want {
			t.Errorf("%v: %+v, %v", c.files, r.Rows, err)
		}
	}
}
