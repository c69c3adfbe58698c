package traffic

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"nearmetal/internal/words"
)

// shown is the largest number of ranks for which text has a matrix; for more, the pairs with most bytes are listed.
const shown = 12

// sum is the bytes and messages of a pair over all channels.
type sum struct {
	from, to        int
	bytes, messages uint64
}

// sums adds up the channels of each pair, in the order of the ranks.
func (m *Matrix) sums() []sum {
	var list []sum
	for _, p := range m.Pairs {
		if n := len(list); n == 0 || list[n-1].from != p.From || list[n-1].to != p.To {
			list = append(list, sum{from: p.From, to: p.To})
		}
		s := &list[len(list)-1]
		s.bytes, s.messages = add(s.bytes, p.Bytes), add(s.messages, p.Messages)
	}
	return list
}

// Bytes returns the matrix of bytes in the order of Ranks: the bytes that a row's rank started with a column's rank.
func (m *Matrix) Bytes() [][]uint64 {
	at := map[int]int{}
	for i, r := range m.Ranks {
		at[r.Rank] = i
	}
	rows := make([][]uint64, len(m.Ranks))
	for i := range rows {
		rows[i] = make([]uint64, len(m.Ranks))
	}
	for _, s := range m.sums() {
		if s.to >= 0 {
			rows[at[s.from]][at[s.to]] = s.bytes
		}
	}
	return rows
}

// Between returns the table of bytes between ranks, of which the first row has the titles, and its heading. For many
// ranks the table lists the pairs with most bytes instead of the matrix.
func (m *Matrix) Between() (title string, rows [][]string) {
	if len(m.Ranks) <= shown {
		rows = [][]string{{"rank", "vm"}}
		for _, r := range m.Ranks {
			rows[0] = append(rows[0], fmt.Sprint(r.Rank))
		}
		for i, line := range m.Bytes() {
			row := []string{fmt.Sprint(m.Ranks[i].Rank), m.Ranks[i].VM}
			for _, n := range line {
				cell := "·"
				if n > 0 {
					cell = words.Bytes(n)
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
		return "What ranks (rows) sent to ranks (columns)", rows
	}
	list := m.sums()
	title = fmt.Sprintf("%d ranks, %s with bytes between them; the most", len(m.Ranks), words.Count(len(list), "pair", "pairs"))
	slices.SortStableFunc(list, func(a, b sum) int { return cmp.Compare(b.bytes, a.bytes) })
	rows = [][]string{{"from", "to", "bytes", "messages"}}
	for _, s := range list[:min(len(list), shown)] {
		rows = append(rows, []string{fmt.Sprint(s.from), fmt.Sprint(s.to), words.Bytes(s.bytes), fmt.Sprint(s.messages)})
	}
	return title, rows
}

// BetweenVMs returns the table of what VMs sent to VMs and over which channels, of which the first row has the titles.
// It returns nil if the ranks are in one VM, or in too many to be shown.
func (m *Matrix) BetweenVMs() [][]string {
	at := map[string]int{}
	var vms []string
	vm := map[int]int{} // of a rank
	for _, r := range m.Ranks {
		if _, ok := at[r.VM]; !ok {
			at[r.VM] = len(vms)
			vms = append(vms, r.VM)
		}
		vm[r.Rank] = at[r.VM]
	}
	if len(vms) < 2 || len(vms) > shown {
		return nil
	}
	type way struct {
		from, to int
		channel  string
	}
	sent := map[way]uint64{}
	for _, p := range m.Pairs {
		if p.To >= 0 {
			w := way{vm[p.From], vm[p.To], p.Channel}
			sent[w] = add(sent[w], p.Bytes)
		}
	}
	rows := [][]string{append([]string{"vm"}, vms...)}
	for i, name := range vms {
		row := []string{name}
		for k := range vms {
			var parts []string
			for _, c := range Channels {
				if n := sent[way{i, k, c}]; n > 0 {
					parts = append(parts, words.Bytes(n)+" "+c)
				}
			}
			if parts == nil {
				parts = []string{"·"}
			}
			row = append(row, strings.Join(parts, ", "))
		}
		rows = append(rows, row)
	}
	return rows
}

// ByChannel returns the table of messages and bytes by channel and size class, of which the first row has the titles.
func (m *Matrix) ByChannel() [][]string {
	rows := [][]string{{"channel", "messages", "bytes"}}
	for _, c := range Classes {
		rows[0] = append(rows[0], "≤ "+words.Bytes(c))
	}
	rows[0] = append(rows[0], "more")
	for _, name := range Channels {
		var bytes, n uint64
		var k [classes]uint64
		for _, p := range m.Pairs {
			if p.Channel != name {
				continue
			}
			bytes, n = add(bytes, p.Bytes), add(n, p.Messages)
			for i := range k {
				k[i] = add(k[i], p.Classes[i])
			}
		}
		row := []string{name, fmt.Sprint(n), words.Bytes(bytes)}
		for _, v := range k {
			row = append(row, fmt.Sprint(v))
		}
		rows = append(rows, row)
	}
	return rows
}

// silence replaces tables without any number.
const silence = "The ranks sent each other no messages over nearmetal's provider.\n"

// VMs writes the table of BetweenVMs, or nothing if there is none.
func (m *Matrix) VMs(w io.Writer) error {
	rows := m.BetweenVMs()
	if rows == nil {
		return nil
	}
	if len(m.Pairs) == 0 {
		_, err := io.WriteString(w, silence)
		return err
	}
	b := strings.Builder{}
	b.WriteString("What VMs (rows) sent to VMs (columns), and over which channel:\n")
	columns(&b, rows)
	_, err := io.WriteString(w, b.String())
	return err
}

// Text writes the matrix for people.
func (m *Matrix) Text(w io.Writer) error {
	var b strings.Builder
	if len(m.Ranks) == 0 {
		b.WriteString("No rank left counts of its messages: they did not go over nearmetal's provider, or the ranks ended without MPI_Finalize.\n")
		_, err := io.WriteString(w, b.String())
		return err
	}
	if len(m.Pairs) == 0 {
		_, err := io.WriteString(w, silence)
		return err
	}
	title, rows := m.Between()
	b.WriteString(title + ":\n")
	columns(&b, rows)
	m.VMs(&b)
	columns(&b, m.ByChannel())
	if m.Advice != "" {
		b.WriteString(m.Advice + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// columns writes rows with aligned columns: the first aligned left, the others right.
func columns(b *strings.Builder, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	for _, r := range rows {
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-len([]rune(c)))
			switch {
			case i == 0:
				b.WriteString(c + pad)
			default:
				b.WriteString("  " + pad + c)
			}
		}
		b.WriteByte('\n')
	}
}
