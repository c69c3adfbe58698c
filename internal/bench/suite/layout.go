package suite

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"nearmetal/internal/text"
)

// Values that depend on where an experiment runs.
const (
	AllGrid   = "all-grid"
	AllBlock  = "all-block"
	AllMemory = "all-memory"
	Rest      = "rest"
)

var rankRules = []string{"", "any", "square", "power of 2"}

// TakesRanks reports whether a rule allows a number of ranks.
func TakesRanks(rule string, n int) bool { return n == MostRanks(rule, n) }

// MostRanks returns the largest number of ranks up to n that a rule allows; n is at least 1.
func MostRanks(rule string, n int) int {
	switch rule {
	case "square":
		r := int(math.Sqrt(float64(n)))
		for r*r > n {
			r--
		}
		return r * r
	case "power of 2":
		p := 1
		for p <= n/2 {
			p *= 2
		}
		return p
	}
	return n
}

// NextRanks returns the smallest number of ranks above n that a rule allows.
func NextRanks(rule string, n int) int {
	for n++; !TakesRanks(rule, n); n++ {
	}
	return n
}

// Grid returns the process grid P x Q for a number of ranks according to HPL's FAQ: "P and Q should be approximately
// equal, with Q slightly larger than P".
func Grid(ranks int) string {
	p := 1
	for i := 1; i*i <= ranks; i++ {
		if ranks%i == 0 {
			p = i
		}
	}
	return fmt.Sprintf("%dx%d", p, ranks/p)
}

// blocks are HPL's block sizes, from that of paper 004 down. HPL's FAQ recommends sizes between 32 and 256. Each
// divides the first, so that an order that is a multiple of the first is a multiple of all.
var blocks = []int{192, 96, 64, 32}

// blocksEach is the least number of blocks that each process has along the longer side of the grid: according to
// HPL's FAQ "the smallest NB, the better the load balance", while a large one is faster. The number is nearmetal's
// choice.
const blocksEach = 4

// Block returns the block size NB for a matrix of order n on a process grid such as 3x4: the largest one with which
// every process has some blocks.
func Block(n int, grid string) (int, error) {
	longer := 1
	for _, side := range strings.Split(grid, "x") {
		v, err := strconv.Atoi(side)
		if err != nil || v < 1 {
			return 0, fmt.Errorf("%s is not a process grid such as 3x4", text.Quote(grid))
		}
		longer = max(longer, v)
	}
	for _, nb := range blocks {
		if n >= nb*longer*blocksEach {
			return nb, nil
		}
	}
	return blocks[len(blocks)-1], nil
}

// Order returns the order N of HPL's matrix for a memory in bytes and a block size nb, which may be AllBlock. HPL's
// FAQ recommends 80 % of the memory, which leaves a fifth to the operating system; N is a multiple of nb, and at
// least that.
func Order(memory uint64, nb string) (string, error) {
	if nb == AllBlock {
		nb = strconv.Itoa(blocks[0])
	}
	block, err := strconv.Atoi(nb)
	if err != nil || block < 1 {
		return "", fmt.Errorf("%s is not a block size", text.Quote(nb))
	}
	n := int(math.Sqrt(0.8*float64(memory)/8)) / block * block
	return strconv.Itoa(max(n, block)), nil
}
