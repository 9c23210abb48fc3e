//go:build !planted

package plant

import "testing"

// Nothing is planted in a build without the tag, so nothing can be switched on by the environment.
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
