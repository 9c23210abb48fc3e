//go:build !planted

package plant

import "testing"

// A build without the tag has no planted bug, and the environment can't switch one on.
func TestNothingIsPlanted(t *testing.T) {
	for _, b := range All() {
		if Is(b) {
			t.Errorf("%s is planted", b)
		}
	}
	if got := Disorder(7); got != 7 {
		t.Errorf("Disorder(7) = %d", got)
	}
}
