package fsm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCleanFacts(t *testing.T) {
	many := map[string]string{}
	for i := range 20 {
		many["fact."+string(rune('a'+i))] = "1"
	}
	got := CleanFacts(map[string]string{"leader": "true", "Bad": "1", "": "1", "long": strings.Repeat("x", 65),
		"lines": "a\nb", "empty": "", "slot.2.drained": "false", strings.Repeat("n", 49): "1"})
	if diff := cmp.Diff(map[string]string{"leader": "true", "slot.2.drained": "false"}, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if kept := CleanFacts(many); len(kept) != maxFacts || kept["fact.a"] != "1" || kept["fact.t"] != "" {
		t.Errorf("of 20 facts %d are kept: %v", len(kept), kept)
	}
	if CleanFacts(map[string]string{"Bad": "1"}) != nil || CleanFacts(nil) != nil {
		t.Error("no facts are nil")
	}
}
