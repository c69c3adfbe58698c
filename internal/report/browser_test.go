//go:build browser

package report

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser starts Chromium, which scripts/install.sh browser installs.
func browser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("no Chromium: sh scripts/install.sh browser")
		}
		t.Skip("no Chromium: sh scripts/install.sh browser installs one")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	ctx, expire := context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(expire)
	t.Cleanup(func() { // before the contexts end, which would leave Chromium running
		if err := chromedp.Cancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return ctx
}

// broken finds cells in which words may be broken in the middle.
const broken = `[...document.querySelectorAll('td')].filter(c => c.offsetParent && getComputedStyle(c).overflowWrap == 'anywhere' && c.clientWidth < 200).map(c => c.textContent.slice(0, 40))`

// look returns the defects of a page as it is shown now, one per line.
const look = `(() => {
	const bad = [];
	const root = document.documentElement;
	if (root.scrollWidth > window.innerWidth) {
		const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > window.innerWidth).slice(-3);
		bad.push('the page is ' + root.scrollWidth + ' wide in a window of ' + window.innerWidth + ': ' + wide.map(e => e.tagName + ' ' + e.textContent.slice(0, 60)).join('; '));
	}
	const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return {r: m[0], g: m[1], b: m[2], a: m.length > 3 ? m[3] : 1}; };
	const lum = c => { const f = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); }; return 0.2126 * f(c.r) + 0.7152 * f(c.g) + 0.0722 * f(c.b); };
	const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0.5) return c; } return {r: 255, g: 255, b: 255}; };
	const ratio = (a, b) => { const x = lum(a), y = lum(b); return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
	const seen = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let texts = 0;
	for (let n; n = walk.nextNode();) {
		const e = n.parentElement;
		if (!n.data.trim() || e.closest('title,style,details:not([open]) > :not(summary)')) continue;
		texts++;
		const style = getComputedStyle(e);
		const svg = e.namespaceURI.includes('svg');
		const r = ratio(parse(svg ? style.fill : style.color), ground(e));
		if (r < 4.5) { const line = 'contrast ' + r.toFixed(2) + ' of ' + e.tagName + '.' + e.getAttribute('class') + ' ' + n.data.trim().slice(0, 30); if (!seen.has(e.className + '')) bad.push(line); seen.add(e.className + ''); }
	}
	if (texts < 100) bad.push('only ' + texts + ' texts');
	const sections = document.querySelectorAll('section.experiment');
	bad.sections = sections.length;
	for (const s of sections) {
		const box = s.getBoundingClientRect();
		if (box.height < 200 || box.width < 200) bad.push(s.id + ' is ' + box.width + ' by ' + box.height);
		const plots = s.querySelectorAll('figure svg');
		if (!plots.length) bad.push(s.id + ' has no plot');
		for (const p of plots) {
			const b = p.getBoundingClientRect();
			if (b.width < 150 || b.height < 80 || b.right > window.innerWidth + 1) bad.push('a plot of ' + s.id + ' is ' + b.width + ' by ' + b.height);
			for (const text of p.querySelectorAll('text')) {
				const q = text.getBoundingClientRect();
				if (q.left < b.left - 3 || q.right > b.right + 3 || q.bottom > b.bottom + 3) bad.push('"' + text.textContent + '" is outside its plot in ' + s.id);
				if (q.height < 7) bad.push('"' + text.textContent + '" is too small to read: ' + q.height);
			}
		}
	}
	return {bad: bad, sections: sections.length};
})()`

func TestBrowser(t *testing.T) {
	run, samples := synthetic()
	r := reportOf(t, writeRun(t, run, samples), "002")
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(htmlOf(t, r)), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx := browser(t)
	var mu sync.Mutex
	var wrong []string
	add := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			add("exception: %s", e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			add("console: %s", e.Type)
		case *log.EventEntryAdded:
			add("log: %s %s", e.Entry.Level, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "file://"+file) && !strings.HasPrefix(u, "data:") {
				add("request: %s", u)
			}
		}
	})
	shots := os.Getenv("NEARMETAL_SHOTS") // directory for screenshots
	for _, width := range []int64{390, 800, 1400} {
		for _, mode := range []string{"light", "dark"} {
			var found struct {
				Bad      []string
				Sections int
			}
			var shot []byte
			actions := chromedp.Tasks{
				network.Enable(), log.Enable(),
				chromedp.EmulateViewport(width, 900),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: mode}}),
				chromedp.Navigate("file://" + file),
				chromedp.Evaluate(look, &found),
				// Also with every table open.
				chromedp.Evaluate(`document.querySelectorAll('details').forEach(d => d.open = true)`, nil),
			}
			if err := chromedp.Run(ctx, actions); err != nil {
				t.Fatal(err)
			}
			for _, b := range found.Bad {
				t.Errorf("%d, %s: %s", width, mode, b)
			}
			var narrow []string
			if err := chromedp.Run(ctx, chromedp.Evaluate(broken, &narrow)); err != nil {
				t.Fatal(err)
			}
			for _, b := range narrow {
				t.Errorf("%d, %s: words of a narrow cell may be broken: %s", width, mode, b)
			}
			if found.Sections != len(run.Cases) {
				t.Errorf("%d, %s: %d of %d experiments", width, mode, found.Sections, len(run.Cases))
			}
			if err := chromedp.Run(ctx, chromedp.Evaluate(look, &found)); err != nil {
				t.Fatal(err)
			}
			for _, b := range found.Bad {
				t.Errorf("%d, %s, tables open: %s", width, mode, b)
			}
			if shots != "" {
				close := chromedp.Evaluate(`document.querySelectorAll('details').forEach(d => d.open = false)`, nil)
				if err := chromedp.Run(ctx, close, chromedp.FullScreenshot(&shot, 100)); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(shots, fmt.Sprintf("%d-%s.png", width, mode)), shot, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// As printed, on the width of A4, and without colour.
	var found struct{ Bad []string }
	var print, grey []byte
	if err := chromedp.Run(ctx, chromedp.EmulateViewport(690, 900), emulation.SetEmulatedMedia().WithMedia("print"),
		chromedp.Navigate("file://"+file), chromedp.Evaluate(look, &found), chromedp.FullScreenshot(&print, 100),
		emulation.SetEmulatedMedia().WithMedia("screen"), chromedp.EmulateViewport(1400, 900),
		chromedp.Evaluate(`document.documentElement.style.filter = 'grayscale(1)'`, nil), chromedp.FullScreenshot(&grey, 100)); err != nil {
		t.Fatal(err)
	}
	for _, b := range found.Bad {
		t.Errorf("printed: %s", b)
	}
	if shots != "" {
		os.WriteFile(filepath.Join(shots, "print.png"), print, 0o644)
		os.WriteFile(filepath.Join(shots, "grey.png"), grey, 0o644)
	}
	var pdf []byte
	if err := chromedp.Run(ctx, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		pdf, _, err = page.PrintToPDF().WithPreferCSSPageSize(true).Do(ctx)
		return err
	})); err != nil || len(pdf) < 10000 {
		t.Errorf("printing: %v, %d bytes", err, len(pdf))
	}
	if shots != "" {
		os.WriteFile(filepath.Join(shots, "print.pdf"), pdf, 0o644)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, w := range wrong {
		t.Error(w)
	}
}
