package model

import (
	"strings"
	"testing"
)

// TestDistance: an extra, missing or wrong letter adds 1 to the distance. So does a swap of two neighbouring letters.
func TestDistance(t *testing.T) {
	for words, want := range map[[2]string]int{
		{"nats", "nats"}: 0, {"natz", "nats"}: 1, {"wbe", "web"}: 1, {"webb", "web"}: 1, {"we", "web"}: 1, {"", "web"}: 3,
		{"abc", "xyz"}: 3, {strings.Repeat("a", 65), "a"}: 64,
	} {
		if got := Distance(words[0], words[1]); got != want {
			t.Errorf("from %q to %q: got %d, want %d", words[0], words[1], got, want)
		}
	}
}
