package region

// Constants of the libfabric provider's layout area. include/nearmetal/layout.h defines the same ones for C, and
// docs/fabric-design.md describes the layout. An area of zeros is a valid, empty layout, so that scrubbing a region
// formats it.
const (
	LayoutFabric      = 1 // a region that a provider made itself, for ranks outside VMs
	LayoutVersion     = 7
	LayoutMaxSlots    = 1024 // ranks
	LayoutMinSlots    = 4
	LayoutLineBytes   = 64
	LayoutBounceBytes = 8192
	LayoutPoolMost    = 3 << 20 // bytes of such buffers per rank
	LayoutMRCount     = 63      // memory regions that a rank exposes

	layoutPage        = 4096
	layoutSlotBytes   = 256
	layoutConnBytes   = 16
	layoutRingMin     = 8 // lines
	layoutRingControl = 128
)

// LayoutSlots returns how many ranks a layout area of n bytes has room for, or 0 if it is too small. It follows
// nm_layout_choose.
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
