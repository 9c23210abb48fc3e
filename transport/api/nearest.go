package api

import "sort"

// nearest returns the name that word was probably meant to be, or "": at most a third of its letters may differ.
func nearest(word string, names []string) string {
	sort.Strings(names)
	best, most := "", min(len(word)/3, 3)+1
	for _, name := range names {
		if d := distance(word, name); d < most {
			best, most = name, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to get from a to b.
func distance(a, b string) int {
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
