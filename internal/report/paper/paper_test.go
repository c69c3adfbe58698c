package paper

import (
	"fmt"
	"testing"
)

func TestPapers(t *testing.T) {
	if got := fmt.Sprint(Names()); got != "[000 001 002 003 004]" {
		t.Fatal(got)
	}
	for _, name := range Names() {
		p, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name {
			t.Errorf("%s calls itself %s", name, p.Name)
		}
		seen := map[string]bool{}
		for _, it := range p.Items {
			if seen[it.Key] {
				t.Errorf("%s has %s twice", name, it.Key)
			}
			seen[it.Key] = true
		}
	}
	if _, err := Open("../000"); err == nil {
		t.Error("a path was opened")
	}
}

// Checks that the listings of paper 002 are consistent, which finds typing errors: a bandwidth is the message rate
// times the size, no peak is below the average, and no latency is below the minimum or above the maximum.
func TestListings(t *testing.T) {
	p, err := Open("002")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	bandwidth := map[float64]float64{} // Gb/s, of the listing before a listing of latencies, on the same link
	for i := range p.Items {
		it, more := p.Items[i].Columns()
		if len(more) == 0 {
			continue
		}
		at := map[string]map[float64]float64{}
		for _, c := range append(more, it) {
			at[c.Metric] = map[float64]float64{}
			for _, pt := range c.Series[0].Points {
				at[c.Metric][pt[0]] = pt[1]
			}
		}
		order := func(lower, upper string, slack float64) {
			for size, v := range at[lower] {
				if w, ok := at[upper][size]; ok {
					checked++
					if v > w+slack {
						t.Errorf("%s at %v bytes: %s %v is above %s %v", it.Key, size, lower, v, upper, w)
					}
				}
			}
		}
		order("bandwidth", "peak bandwidth", 0)
		order("minimum", "latency", 0)
		order("minimum", "average", 0)
		order("latency", "99 percent", 0)
		order("99 percent", "99.9 percent", 0)
		order("99.9 percent", "maximum", 0)
		for size, rate := range at["message rate"] {
			v, ok := at["bandwidth"][size]
			if want := rate * 1e6 * size * 8 / 1e9; !ok || want-v > 0.011 || v-want > 0.011 {
				t.Errorf("%s at %v bytes: %v, and by the message rate %.3f", it.Key, size, v, want)
			}
			checked++
		}
		// Finds rows of latencies that were assigned to another size: a message needs at least as long as its bytes
		// on the link, and from 256 KiB on little more.
		for size, v := range at["latency"] {
			if us := size * 8 / bandwidth[size] / 1e3; bandwidth[size] > 0 {
				checked++
				if v < us || size >= 256<<10 && v > 1.4*us {
					t.Errorf("%s at %v bytes: %v us, and its bytes alone take %.2f", it.Key, size, v, us)
				}
			}
		}
		if at["bandwidth"] != nil {
			bandwidth = at["bandwidth"]
		}
	}
	if checked < 310 {
		t.Errorf("only %d pairs were compared", checked)
	}
}

func TestKeys(t *testing.T) {
	for in, want := range map[string]string{
		"002 fig 12": "[{002 fig 12}]",
		"000 fig 3; 002 fig 20; 003 p 24; 004 fig 10, 11": "[{000 fig 3} {002 fig 20} {003 p 24} {004 fig 10} {004 fig 11}]",
		"001 Figure 1(b)":   "[{001 fig 1}]",
		"004 fig 18-20":     "[{004 fig 18} {004 fig 19} {004 fig 20}]",
		"":                  "[]",
		"fig 3":             "[]",
		"002 fig 1-9999999": "",
	} {
		got := fmt.Sprint(Keys(in))
		if want != "" && got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestFactor(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     float64
	}{{"us", "us", 1}, {"ms", "us", 1000}, {"GB/s", "Gb/s", 8}, {"MB/s", "GB/s", 0.001}} {
		if got, ok := Factor(c.from, c.to); !ok || got < c.want*0.999 || got > c.want*1.001 {
			t.Errorf("%s to %s: %v", c.from, c.to, got)
		}
	}
	if _, ok := Factor("us", "GB/s"); ok {
		t.Error("a time was made a rate")
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		data, _ := files.ReadFile("data/" + name + ".yaml")
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := Parse(data); err == nil && p.Name == "" {
			t.Error("a paper without a name")
		}
	})
}

func FuzzKeys(f *testing.F) {
	f.Add("000 fig 3; 002 fig 20; 004 fig 10-11")
	f.Fuzz(func(t *testing.T, s string) {
		for _, k := range Keys(s) {
			if len(k.Paper) != 3 || k.Item == "" {
				t.Errorf("%q: %v", s, k)
			}
		}
	})
}
