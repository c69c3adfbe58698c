package region

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Use describes how ranks use a region at one moment.
type Use struct {
	// Ranks is the number of ranks that communicate through the region.
	Ranks int `json:"ranks"`
	// Lines is the number of lines, of LayoutLineBytes bytes each, that these ranks have read from each other's rings.
	// A short message counts as one line, as does a piece of a large message, which is stored outside the ring. nil:
	// too many ranks to count.
	Lines *uint64 `json:"lines,omitempty"`
}

// useRanks bounds the ranks whose lines are counted, because each pair of ranks has a ring.
const useRanks = 64

// States of a slot, and offsets of the fields that Use reads (include/nearmetal/layout.h).
const (
	slotState = 3 // bits of the owner word
	slotLive  = 2
	headWord  = 8 // bytes of the geometry word
)

// ReadUse reads the use of the region with header h, which starts at offset of f, in bytes. Ranks change it
// concurrently, and may write anything there: each word is read once and checked, and at worst the counts are wrong.
func (h *Header) ReadUse(f io.ReaderAt, offset int64) (Use, error) {
	at := func(n, from uint64) ([]byte, error) {
		if from > h.LayoutBytes || n > h.LayoutBytes-from {
			return nil, fmt.Errorf("the region's layout area ends before %d", from+n)
		}
		b := make([]byte, n)
		_, err := f.ReadAt(b, offset+int64(h.LayoutOffset+from))
		return b, err
	}
	le := binary.LittleEndian
	b, err := at(headWord, 0)
	if err != nil {
		return Use{}, err
	}
	word := le.Uint64(b)
	if word == 0 {
		return Use{Lines: new(uint64)}, nil // no rank has attached yet
	}
	log2 := word >> 48 & 0xff
	if word>>56 != LayoutVersion || log2 < 2 || log2 > 10 {
		return Use{}, fmt.Errorf("the region has a layout of another version than %d", LayoutVersion)
	}
	slots, area := uint64(1)<<log2, word&(1<<48-1)
	if area > h.LayoutBytes/layoutPage {
		return Use{}, fmt.Errorf("the region's layout does not fit its area")
	}
	area *= layoutPage
	table, err := at(slots*layoutSlotBytes, layoutPage)
	if err != nil {
		return Use{}, err
	}
	var live []uint64
	owners := make([]uint64, slots)
	for i := range slots {
		owners[i] = le.Uint64(table[i*layoutSlotBytes:])
		if owners[i]&slotState == slotLive {
			live = append(live, i)
		}
	}
	u := Use{Ranks: len(live)}
	if len(live) > useRanks {
		return u, nil
	}
	conns := layoutPage + slots*layoutSlotBytes
	areas := conns + slots*slots*layoutConnBytes + slots*(LayoutMRCount+1)*LayoutLineBytes
	var lines uint64
	for _, to := range live {
		row, err := at(slots*layoutConnBytes, conns+to*slots*layoutConnBytes)
		if err != nil {
			return Use{}, err
		}
		for _, from := range live {
			c := row[from*layoutConnBytes:]
			ring, epoch := uint64(le.Uint32(c)), le.Uint32(c[12:])
			if ring == 0 || epoch != uint32(owners[from]>>2) {
				continue // no ring, or one of an earlier rank
			}
			ring = (ring - 1) * LayoutLineBytes
			if ring+layoutRingControl > area {
				continue
			}
			tail, err := at(8, areas+from*area+ring)
			if err != nil {
				continue
			}
			lines += le.Uint64(tail)
		}
	}
	u.Lines = &lines
	return u, nil
}
