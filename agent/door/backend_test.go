package door

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func TestPickIsFair(t *testing.T) {
	r := NewRelay(DefaultLimits(), hclog.NewNullLogger())
	defer r.Close()
	s := newServed(r, "web", "127.0.0.1:1")
	var set []model.Backend
	for n := range 5 {
		set = append(set, model.Backend{Instance: model.InstanceID(rune('a' + n)), Node: "there", Address: fmt.Sprint(n)})
	}
	s.set("here", transport.ServiceBackends{Backends: set})
	got := map[string]int{}
	for range 1000 {
		address, b, ok := connect(t.Context(), s, func(_ context.Context, a string) (string, error) {
			if a == "3" {
				return "", errors.New("unreachable")
			}
			return a, nil
		})
		if !ok {
			t.Fatal("no backend")
		}
		got[address]++
		s.done(b)
	}
	for _, a := range []string{"0", "1", "2", "4"} {
		if got[a] < 150 {
			t.Errorf("backend %s got %d of 1000: %v", a, got[a], got)
		}
	}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, []string{"0", "1", "2", "4"}) {
		t.Errorf("%v", keys)
	}
}
