package driver

import (
	"testing"

	"github.com/outspan/outspan/model"
)

// What job validate accepts, a start can set.
func TestRlimitNames(t *testing.T) {
	for _, name := range model.RlimitNames() {
		if _, ok := rlimitNumber(name); !ok {
			t.Errorf("%s is no limit", name)
		}
	}
}
