package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ParseSize returns the number of bytes that a text such as "1.5GiB" means. The units are B, KB, MB, GB, TB (powers of
// 1000) and KiB, MiB, GiB, TiB (powers of 1024). A number without a unit is an error.
func ParseSize(text string) (int64, error) {
	i := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if i <= 0 {
		return 0, fmt.Errorf("%q is not a size; write a number with a unit, such as \"128MiB\"", text)
	}
	n, err := strconv.ParseFloat(text[:i], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size; write a number with a unit, such as \"128MiB\"", text)
	}
	unit, ok := sizeUnit(strings.TrimSpace(text[i:]))
	if !ok {
		return 0,
			fmt.Errorf("%q has the unknown unit %q; the units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB", text, text[i:])
	}
	bytes := n * unit
	if bytes > math.MaxInt64/4 {
		return 0, fmt.Errorf("%q is larger than any machine", text)
	}
	return int64(bytes), nil
}

func sizeUnit(name string) (float64, bool) {
	switch name {
	case "B":
		return 1, true
	case "KB":
		return 1e3, true
	case "MB":
		return 1e6, true
	case "GB":
		return 1e9, true
	case "TB":
		return 1e12, true
	case "KiB":
		return 1 << 10, true
	case "MiB":
		return 1 << 20, true
	case "GiB":
		return 1 << 30, true
	case "TiB":
		return 1 << 40, true
	}
	return 0, false
}
