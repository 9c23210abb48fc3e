package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport/httpapi"
)

// A followed log that ends because its reader lost its token or its right is cut off: it looks like no whole log.
func TestLogIsCutOffWithTheRight(t *testing.T) {
	r := newRig(t)
	r.world()
	revoked, bound := r.grantToken("a", model.Hour, "deployer"), r.grantToken("b", model.Hour)
	r.bind("deployer token:b", "admin cert:alice")
	open := func(header string) <-chan error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		t.Cleanup(cancel)
		resp := must(r.bearerOpen(ctx, "", http.MethodGet, "s1", "/v1/jobs/web/logs?follow=true", header))(t)
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		ended := make(chan error, 1)
		go func() {
			defer resp.Body.Close()
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		return ended
	}
	for name, one := range map[string]struct {
		ended  <-chan error
		change fsm.Command
	}{
		"a token is revoked": {open(bearerOf(revoked)), &fsm.AccessTokenRevoke{ID: revoked.ID()}},
		"a role is taken":    {open(bearerOf(bound)), &fsm.BindingRemove{Role: "deployer", To: "token:b"}},
	} {
		r.apply(one.change)
		select {
		case err := <-one.ended:
			if err == nil {
				t.Errorf("%s: the log ended as if it were whole", name)
			}
		case <-time.After(15 * time.Second): // generous
			t.Errorf("%s: the log goes on", name)
		}
	}
}

// deaf is a store that never wakes those who wait for one topic.
type deaf struct {
	httpapi.Store
	to fsm.Topic
}

func (d deaf) WatchTopic(t fsm.Topic) (<-chan struct{}, func()) {
	if t == d.to {
		return nil, func() {}
	}
	return d.Store.WatchTopic(t)
}

// A stream of events ends by the state that takes the right away, and shows nothing of that state or a later one,
// however many events follow at once. Two things end it, and each suffices: the change of rights wakes it, and it looks
// at the rights in the same state as at the events. So no clock bounds the time.
func TestEventsEndWithTheState(t *testing.T) {
	for _, missing := range []fsm.Topic{"rights", "events"} {
		t.Run("without "+string(missing), func(t *testing.T) {
			r := newRig(t)
			r.startWith("s1", func(c *httpapi.Config) { c.Store = deaf{c.Store, missing} })
			r.world()
			r.bind("viewer cert:vera", "admin cert:alice")
			resp := must(r.client(pki.RoleCLI, "vera").Open(t.Context(), reach.Request{Path: "/v1/events",
				Query: values("after=0"), Header: http.Header{"Accept": {"application/x-ndjson"}}}))(t)
			defer resp.Body.Close()
			var seen []uint64
			got, opened := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(got)
				for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
					var e api.Event
					if json.Unmarshal(lines.Bytes(), &e) != nil {
						continue // a sign of life
					}
					if seen = append(seen, e.Index); len(seen) == 1 {
						close(opened)
					}
				}
			}()
			<-opened
			begun := time.Now()
			lost := r.apply(&fsm.BindingRemove{Role: "viewer", To: "cert:vera"})
			for n := range 200 {
				r.apply(&fsm.JobScale{Job: "web", Group: "http", Count: 1 + n%2})
			}
			if newest, _, _ := r.machine.Current().Events.Max(); newest.Index() < lost+200 {
				t.Fatalf("the newest event is %s, and the right was lost at %d", newest, lost)
			}
			select {
			case <-got:
				t.Logf("the stream has ended %s after the change", time.Since(begun))
			case <-time.After(15 * time.Second): // generous
				t.Fatal("the stream goes on")
			}
			if last := slices.Max(seen); last >= lost {
				t.Errorf("the stream shows an event of index %d, and the right was lost at %d", last, lost)
			}
		})
	}
}
