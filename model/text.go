package model

import (
	"fmt"
	"strconv"
	"strings"
)

// SizeText returns a number of bytes as job files write it, such as "128MiB". The amount is rounded down to a whole
// number of the unit.
func SizeText(n int64) string {
	units := [...]string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 && (n%1024 == 0 || n >= 10*1024) {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// ClipText cuts text to at most the given number of bytes. It also removes incomplete and invalid UTF-8, because API
// replies and pages must be valid UTF-8.
func ClipText(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// Fingerprint returns the first 8 bytes of the hash of a key for people to compare, such as "3f2a-91bc-0d4e-77aa".
func Fingerprint(hash []byte) string {
	var b strings.Builder
	for i, one := range hash[:min(len(hash), 8)] {
		if i > 0 && i%2 == 0 {
			b.WriteByte('-')
		}
		fmt.Fprintf(&b, "%02x", one)
	}
	return b.String()
}

// Distance returns the least number of edits that turn a into b. An edit inserts, deletes or replaces one byte, or
// swaps two neighbouring bytes. The result is 64 if a or b is longer than 64 bytes.
func Distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		above, row := rows[(i+2)%3], rows[i%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], rows[(i+1)%3][j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
