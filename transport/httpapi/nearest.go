package httpapi

import (
	"sort"

	"github.com/outspan/outspan/model"
)

// nearest returns the name that is most similar to word, or "" if no name is similar enough: at most three letters, and
// at most a third of word's letters, may differ. It sorts names in place.
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
