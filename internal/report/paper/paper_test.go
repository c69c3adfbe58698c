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

// The bandwidths of paper 002 agree with the message rates printed beside them.
func TestRates(t *testing.T) {
	rates := map[string]map[float64]float64{ // million messages a second
		"fig 17": {2: 6.769307, 64: 7.230020, 128: 5.549830, 256: 6.039957, 1024: 6.523100, 4096: 2.838018, 65536: 0.183225, 1048576: 0.011463, 2097152: 0.005737},
		"fig 19": {4: 6.868166, 8: 5.091346, 32: 5.885992, 128: 6.482748, 512: 5.645554, 2048: 4.546635, 524288: 0.021454, 2097152: 0.005670},
	}
	p, err := Open("002")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, it := range p.Items {
		for _, s := range it.Series {
			for _, pt := range s.Points {
				if rate, ok := rates[it.Key][pt[0]]; ok {
					checked++
					if want := rate * 1e6 * pt[0] * 8 / 1e9; want-pt[1] > 0.011 || pt[1]-want > 0.011 {
						t.Errorf("%s at %v bytes: %v, and by the message rate %.3f", it.Key, pt[0], pt[1], want)
					}
				}
			}
		}
	}
	if checked != 17 {
		t.Errorf("%d of 17 values were found", checked)
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
