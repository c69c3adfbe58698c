package region

// What the libfabric provider keeps in the layout area; include/nearmetal/layout.h has
// the same constants for C, docs/fabric-design.md describes it. An area of zeros is a valid,
// empty layout: scrubbing a region is all the formatting there is.
const (
	LayoutFabric      = 1 // a region that a provider made itself, for ranks outside VMs
	LayoutVersion     = 7
	LayoutMaxSlots    = 1024 // ranks
	LayoutMinSlots    = 4
	LayoutLineBytes   = 64
	LayoutBounceBytes = 8192
	LayoutPoolMost    = 3 << 20 // bytes of such buffers a rank
	LayoutMRCount     = 63      // memory regions a rank shows

	layoutPage        = 4096
	layoutSlotBytes   = 256
	layoutConnBytes   = 16
	layoutRingMin     = 8 // lines
	layoutRingControl = 128
)

// LayoutSlots returns how many ranks find room in a layout area of n bytes; 0: none do.
// It follows nm_layout_choose.
func LayoutSlots(n uint64) int {
	for slots := uint64(LayoutMaxSlots); slots >= LayoutMinSlots; slots /= 2 {
		fixed := layoutPage + slots*layoutSlotBytes + slots*slots*layoutConnBytes +
			slots*(LayoutMRCount+1)*LayoutLineBytes
		if fixed >= n {
			continue
		}
		area := (n - fixed) / slots &^ (layoutPage - 1)
		if slots > 16 && area < 1<<20 {
			continue
		}
		if area >= slots*(layoutRingControl+layoutRingMin*LayoutLineBytes)+4*LayoutBounceBytes {
			return int(slots)
		}
	}
	return 0
}
