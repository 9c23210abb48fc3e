//go:build !planted

package plant

import "testing"

// A build without the tag planted has no planted bug.
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
