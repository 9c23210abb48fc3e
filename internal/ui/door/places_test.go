package door

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"
)

// Bodies that don't come take no place from those who sign in.
func TestSlowSendersTakeNoPlace(t *testing.T) {
	t.Parallel()
	var sources atomic.Int64
	r := newRig(t, func(c *Config) { c.Source = func(string) string { return fmt.Sprint(sources.Add(1)) } })
	for range maxSigning {
		c, err := tls.Dial("tcp", r.at.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "POST /ui/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
			"Content-Length: 100\r\n\r\n{")
		if err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(readTime / 2) // on a slow machine the first bodies end before the last one begins
	for sources.Load() < maxSigning && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	r.signIn()
}

// A request without a session says so, so that its connection ends.
func TestConnectionWithoutSession(t *testing.T) {
	var ended atomic.Int64
	r := newRig(t, func(c *Config) { c.Unproved = func(context.Context) { ended.Add(1) } })
	r.signIn()
	before := ended.Load()
	r.want(200, "", "GET", "/v1/nodes", "")
	r.want(200, "", "GET", "/", "")
	if got := ended.Load(); got != before {
		t.Errorf("with a session: %d calls", got-before)
	}
	r.want(200, "", "DELETE", "/ui/session", "")
	r.want(200, "", "GET", "/", "")
	if got := ended.Load(); got != before+2 {
		t.Errorf("after the session: %d calls, want 2", got-before)
	}
}

// A sign-out calls Unproved after its last call to the API, because each call marks the connection as proved.
func TestSignOutEndsTheConnection(t *testing.T) {
	var last atomic.Bool
	var r *rig
	r = newRig(t, func(c *Config) {
		c.Provider = provider{}
		c.Unproved = func(context.Context) { last.Store(r.api.tokens["osa1.login.secret"] == "") }
	})
	r.want(200, "", "POST", "/ui/sign-in", "{}")
	r.want(200, "oidc:x#alice", "POST", "/ui/sign-in/finish", `{"code":"good","state":"s1"}`)
	r.want(200, "", "DELETE", "/ui/session", "")
	if !last.Load() {
		t.Error("the connection counts as proved after the sign-out")
	}
}
