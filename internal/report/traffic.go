package report

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/report/chart"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/traffic"
	"nearmetal/internal/words"
)

// TrafficPicture draws the matrix of bytes between ranks.
func TrafficPicture(m *traffic.Matrix) *chart.Scene {
	h := chart.Heat{Title: "Bytes between ranks", Rows: "from rank", Cols: "to rank",
		Words: func(v float64) string { return words.Bytes(uint64(v)) }}
	for i, row := range m.Bytes() {
		h.Labels = append(h.Labels, fmt.Sprint(m.Ranks[i].Rank))
		h.Groups = append(h.Groups, m.Ranks[i].VM)
		var values []float64
		for _, n := range row {
			values = append(values, float64(n))
		}
		h.Values = append(h.Values, values)
	}
	return h.Scene()
}

// mostDrawn is the maximum number of ranks of a matrix in the page, because the picture has a cell for each pair.
const mostDrawn = 128

type trafficView struct {
	Title, Between, Advice string
	Picture                template.HTML // "": too many ranks
	Tables                 []tableRows
}

type tableRows struct {
	Head []string
	Rows [][]string
}

// sound returns the valid matrices of traffic between ranks in a run, and a note for each invalid one.
func sound(list []record.Traffic) (out []*record.Traffic, notes []string) {
	for i := range list {
		if err := list[i].Check(); err != nil {
			notes = append(notes, list[i].Case+", "+list[i].Variant+": "+err.Error())
			continue
		}
		out = append(out, &list[i])
	}
	return out, notes
}

// trafficTitle returns the title of a matrix: its case, variant and point of the run.
func (r *RunReport) trafficTitle(t *record.Traffic) string {
	name := t.Case
	for _, c := range r.Run.Cases {
		if c.Name == t.Case && c.Title != "" {
			name = c.Title
		}
	}
	name += ", " + t.Variant
	for _, k := range sortedKeys(t.Point) {
		name += ", " + k + " " + t.Point[k]
	}
	return name
}

func (r *RunReport) traffic() ([]trafficView, error) {
	var out []trafficView
	for _, t := range r.Traffic {
		v := trafficView{Title: r.trafficTitle(t), Advice: t.Advice}
		if rows := traffic.CarriedRows(t.Carried); len(t.Ranks) == 0 && rows != nil {
			v.Advice, v.Between = traffic.Uncounted, "Meanwhile the VMs' interfaces carried, of all programs"
			v.Tables = []tableRows{{rows[0], rows[1:]}}
			out = append(out, v)
			continue
		}
		var rows [][]string
		v.Between, rows = t.Between()
		v.Tables = append(v.Tables, tableRows{rows[0], rows[1:]})
		if rows = t.BetweenVMs(); rows != nil {
			rows[0][0] = "from VM, to VM"
			v.Tables = append(v.Tables, tableRows{rows[0], rows[1:]})
		}
		rows = t.ByChannel()
		v.Tables = append(v.Tables, tableRows{rows[0], rows[1:]})
		if len(t.Ranks) <= mostDrawn {
			var b bytes.Buffer
			if err := TrafficPicture(&t.Matrix).Inline(&b); err != nil {
				return nil, err
			}
			v.Picture = template.HTML(b.String())
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *RunReport) textTraffic(out *strings.Builder, colour bool) error {
	for _, t := range r.Traffic {
		var b strings.Builder
		write := t.Text
		if len(t.Ranks) == 0 && len(t.Carried) > 0 {
			write = func(w io.Writer) error { return traffic.WriteCarried(w, t.Carried) }
		}
		if err := write(&b); err != nil {
			return err
		}
		fmt.Fprintf(out, "\n%s\n", terminal.Paint(text.Clean("What ranks sent: "+r.trafficTitle(t)), terminal.Bold, colour))
		for _, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
			fmt.Fprintln(out, "  "+text.Clean(line))
		}
	}
	return nil
}
