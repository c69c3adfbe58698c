package spec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"nearmetal/internal/text"
)

// Size is a number of bytes. In a file or a flag it is a whole number with a unit of 1024 (512MiB, 2GiB; 512M and 2GB
// are the same, as in Slurm and QEMU). In a file it can lack the unit, for bytes. It is a flag value (pflag.Value) and
// marshals itself as text, also in JSON.
type Size uint64

// The units of a Size.
const (
	KiB Size = 1 << 10
	MiB Size = 1 << 20
	GiB Size = 1 << 30
	TiB Size = 1 << 40
)

var sizeUnits = []struct {
	name  string
	bytes Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}}

// ParseSize parses a size: digits, then nothing for bytes, or K, M, G or T in either case, optionally followed by iB
// or B. slurm/values.c accepts the same.
func ParseSize(s string) (Size, error) {
	digits, unit := strings.TrimRight(s, "iB"), Size(1)
	if n := len(digits); n > 0 {
		for _, u := range sizeUnits {
			if rest := s[n:]; digits[n-1]&^0x20 == u.name[0] && (rest == "" || rest == "B" || rest == "iB") {
				digits, unit = digits[:n-1], u.bytes
				break
			}
		}
	}
	if unit == 1 {
		digits = s
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, sizeError(s)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > math.MaxUint64/uint64(unit) {
		return 0, fmt.Errorf("%s is too large for a size", text.Quote(s))
	}
	return Size(n) * unit, nil
}

// noUnit returns a message if a text probably lacks a unit, because a small number of bytes, such as 1024, cannot be
// a VM's memory. "": it does not.
func noUnit(s string) string {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || Size(n) >= MiB {
		return ""
	}
	return fmt.Sprintf("%s has no unit: write %dMiB", s, n)
}

// CheckUnit returns an error for a size on the command line that is a number without a unit, unless it is 0. A file may have
// a number of bytes; on the command line a bare number is mostly meant as MiB, as in QEMU and Slurm.
func CheckUnit(s string) error {
	if message := noUnit(s); message != "" {
		return errors.New(message)
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		return nil
	}
	if size := Size(n).String(); size != s {
		return fmt.Errorf("%s has no unit: write %s", s, size)
	}
	return fmt.Errorf("%s has no unit: write it with KiB, MiB, GiB or TiB", s)
}

// sizeError returns an error that s is not a size, with the probably intended text.
func sizeError(s string) error {
	const plain = "a number with KiB, MiB, GiB or TiB, such as 2GiB"
	t := strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(s), " ", ""))
	end := 0
	for end < len(t) && (t[end] >= '0' && t[end] <= '9' || t[end] == '.') {
		end++
	}
	if end == 0 || end > 20 {
		return fmt.Errorf("%s is not a size: write %s", text.Quote(s), plain)
	}
	number, ok := new(big.Rat).SetString(t[:end])
	if !ok {
		return fmt.Errorf("%s is not a size: write %s", text.Quote(s), plain)
	}
	unit := int64(0)
	switch strings.TrimSuffix(strings.TrimSuffix(t[end:], "B"), "I") {
	case "K":
		unit = int64(KiB)
	case "M":
		unit = int64(MiB)
	case "G":
		unit = int64(GiB)
	case "T":
		unit = int64(TiB)
	case "":
		unit = 1
	}
	number.Mul(number, new(big.Rat).SetInt64(unit))
	if unit == 0 || !number.IsInt() || !number.Num().IsUint64() {
		return fmt.Errorf("%s is not a size: write %s", text.Quote(s), plain)
	}
	return fmt.Errorf("%s is not a size: write %s", text.Quote(s), Size(number.Num().Uint64()))
}

// String returns the shortest exact form that ParseSize accepts.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.bytes == 0 {
			return strconv.FormatUint(uint64(s/u.bytes), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}

// Set parses a flag's value as ParseSize does. It needs a unit unless it is 0.
func (s *Size) Set(text string) error {
	if err := CheckUnit(text); err != nil {
		return err
	}
	return s.UnmarshalText([]byte(text))
}

// Type names the kind of value in a flag's help.
func (s *Size) Type() string { return "SIZE" }

// MarshalText returns String's form.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the same texts as ParseSize.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := ParseSize(string(text))
	if err == nil {
		*s = n
	}
	return err
}

// UnmarshalJSON parses a string as ParseSize does, or a number of bytes.
func (s *Size) UnmarshalJSON(data []byte) error {
	return s.UnmarshalText(bytes.Trim(data, `"`))
}
