package httpapi

import (
	"sort"

	"github.com/outspan/outspan/model"
)

// nearest returns the name that word was probably meant to be, or "". At most a third of its letters may differ.
func nearest(word string, names []string) string {
	sort.Strings(names)
	best, most := "", min(len(word)/3, 3)+1
	for _, name := range names {
		if d := model.Distance(word, name); d < most {
			best, most = name, d
		}
	}
	return best
}
