package region

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cProgram compiles C text that includes nearmetal/region.h and runs it.
func cProgram(t *testing.T, text string, args ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs a C compiler")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "t.c"), filepath.Join(dir, "t")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I../../include", "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// The C and the Go definition of the header are equal.
func TestCHeader(t *testing.T) {
	type row struct {
		c    string
		want uint64
	}
	off := func(field string, want int) row {
		return row{"offsetof(struct nm_region_header, " + field + ")", uint64(want)}
	}
	rows := []row{
		{"NM_REGION_VERSION", Version}, {"NM_REGION_HEADER_BYTES", HeaderBytes},
		{"NM_REGION_MIN_BYTES", MinBytes}, {"NM_REGION_MAX_BYTES", MaxBytes},
		{"NM_REGION_DEVDAX_OFFSET", DevdaxOffset}, {"NM_REGION_FLAGS", flagsKnown},
		{"NM_REGION_FLAG_HUGETLB", FlagHugetlb}, {"NM_REGION_FLAG_DEVDAX", FlagDevdax},
		{"NM_REGION_LAYOUT_NONE", LayoutNone}, {"NM_REGION_ID_BYTES", uint64(len(ID{}))},
		{"sizeof(struct nm_region_header)", HeaderBytes},
		off("magic", offMagic), off("version", offVersion), off("header_bytes", offHeaderBytes),
		off("size_bytes", offSize), off("flags", offFlags), off("key", offKey), off("cluster", offCluster),
		off("host", offHost), off("layout_offset", offLayout), off("layout_bytes", offLayoutBytes),
		off("layout_type", offLayoutType), off("layout_version", offLayoutVersion),
		off("scratch_offset", offScratch), off("scratch_bytes", offScratchBytes), off("crc", offCRC),
	}
	var src, want strings.Builder
	src.WriteString("#include <stdio.h>\n#include <nearmetal/region.h>\nint main(void)\n{\n\tputs(NM_REGION_MAGIC);\n")
	fmt.Fprintln(&want, magic)
	for _, r := range rows {
		fmt.Fprintf(&src, "\tprintf(\"%%s %%llu\\n\", %q, (unsigned long long)(%s));\n", r.c, r.c)
		fmt.Fprintf(&want, "%s %d\n", r.c, r.want)
	}
	src.WriteString("\treturn 0;\n}\n")
	if got := cProgram(t, src.String()); got != want.String() {
		t.Errorf("C has\n%swant\n%s", got, want.String())
	}
}

// C accepts the headers that Go accepts, and rejects those that Go rejects.
func TestCReader(t *testing.T) {
	dir := t.TempDir()
	var files []string
	var want strings.Builder
	add := func(name string, b []byte) {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, p)
		_, err := ParseHeader(b, 4<<20)
		fmt.Fprintf(&want, "%s %v\n", name, err == nil)
	}
	h := sound()
	add("sound", h.marshal())
	for name, c := range map[string]func(h *Header){
		"size":    func(h *Header) { h.SizeBytes++ },
		"small":   func(h *Header) { h.SizeBytes = 8192 },
		"flags":   func(h *Header) { h.Flags = 4 },
		"layout":  func(h *Header) { h.LayoutBytes = ^uint64(4095) },
		"header":  func(h *Header) { h.LayoutOffset = 0 },
		"scratch": func(h *Header) { h.ScratchBytes += 4096 },
		"overlap": func(h *Header) { h.LayoutBytes += 4096 },
	} {
		h := sound()
		c(&h)
		add(name, h.marshal())
	}
	bad := h.marshal()
	bad[1000] = 1
	add("checksum", bad)
	add("zeros", make([]byte, HeaderBytes))
	got := cProgram(t, `
#include <stdio.h>
#include <nearmetal/region.h>
int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct nm_region_header h;
		char buf[4096] = {0};
		FILE *f = fopen(argv[i], "rb");
		if (!f || fread(buf, 1, sizeof(buf), f) != sizeof(buf))
			return 1;
		fclose(f);
		printf("%s %s\n", strrchr(argv[i], '/') + 1, nm_region_read(buf, 4 << 20, &h) ? "false" : "true");
	}
	return 0;
}
`, files...)
	if got != want.String() {
		t.Errorf("C says\n%sGo says\n%s", got, want.String())
	}
}
