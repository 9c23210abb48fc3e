package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
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
