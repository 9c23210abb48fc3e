package client_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/outspan/outspan/client"
)

// serve serves h on a unix socket until the test ends. It returns a client that tries each call only once.
func serve(t testing.TB, h http.HandlerFunc) *client.Client {
	t.Helper()
	return serveFor(t, -1, h)
}

// serveFor is like serve, but the client repeats failed calls for up to retryFor.
func serveFor(t testing.TB, retryFor time.Duration, h http.HandlerFunc) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{Addresses: []string{"unix://" + socket}, RetryFor: retryFor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
