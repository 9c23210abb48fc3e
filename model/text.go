package model

import (
	"strconv"
	"strings"
)

// SizeText is a number of bytes as job files write it: whole units, rounded down.
func SizeText(n int64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 && (n%1024 == 0 || n >= 10*1024) {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// ClipText keeps at most so many bytes of a text, and of those whole characters only: replies and pages are UTF-8.
func ClipText(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
