package httpapi

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// FuzzQueries: a parameter is either accepted, with a value within its bounds, or refused with a code. An accepted
// filter never panics on an item.
func FuzzQueries(f *testing.F) {
	for _, text := range []string{"30s", "60s", "61s", "-1s", "state=active,labels.rack=r1", "name~a", "name!=",
		"labels.a.b.c=x", "capacity.cpu=1", "x=y", "!=", "d2Vi", "12.3", "17592186044416.0", "1.1048576", "0"} {
		f.Add(text)
	}
	node := api.Node{Name: "n1", Labels: map[string]string{"rack": "r1"}}
	f.Fuzz(func(t *testing.T, text string) {
		coded := func(what string, err error) bool {
			if err == nil {
				return true
			}
			known, ok := errors.AsType[*model.Error](err)
			if !ok || known.Code == "" || known.Message == "" || len(err.Error()) > 1000 {
				t.Errorf("%s %q is refused with %v", what, text, err)
			}
			return false
		}
		if d, err := parseWait(text); coded("wait", err) && (d < 0 || d > maxWait) {
			t.Errorf("wait %q is %s", text, d)
		}
		if id, err := parseEventID(text); coded("event", err) && strings.Contains(text, ".") {
			if again, err := parseEventID(id.String()); err != nil || again != id {
				t.Errorf("event %q is %s, read again as %s (%v)", text, id, again, err)
			}
		}
		_, err := parseNext(text)
		coded("next", err)
		_, err = parseSelection[api.Node](text)
		coded("fields", err)
		if keep, err := parseFilter[api.Node](text); coded("filter", err) {
			keep.match(node)
			keep.match(api.Node{})
		}
		if keep, err := parseFilter[api.Instance](text); coded("filter", err) {
			keep.match(api.Instance{})
		}
		if d, err := model.ParseDuration(text); err == nil && d != model.Forever {
			if got := parsePoll(d); got < 0 || got > time.Minute {
				t.Errorf("poll %q is %s", text, got)
			}
		}
	})
}
