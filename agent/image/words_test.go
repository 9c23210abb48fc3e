package image

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The words of a registry are what is new to the reader: not the name of the image again, and not the path of a
// request. So the cause is not cut away from a long message.
func TestWords(t *testing.T) {
	const name = "registry.lan:5000/team/web"
	dgst := "sha256:" + strings.Repeat("a", 64)
	dial := &url.Error{Op: "Head", URL: "https://registry.lan:5000/v2/team/web/manifests/" + dgst,
		Err: errors.New("dial tcp 10.0.0.9:5000: connect: connection refused")}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("failed to resolve reference %q: failed to do request: %w", name+"@"+dgst, dial),
			"https://registry.lan:5000: dial tcp 10.0.0.9:5000: connect: connection refused"},
		{fmt.Errorf("failed to resolve reference %q: %s: not found", name+"@"+dgst, name+"@"+dgst), "not found"},
		{errors.New(name + ":1.2: not found"), "not found"},
		{errors.New("pull access denied: no basic auth credentials"), "pull access denied: no basic auth credentials"},
		{errors.New("unexpected status from HEAD request to https://registry.lan: 500"),
			"unexpected status from HEAD request to https://registry.lan: 500"},
		{errors.New("content digest " + dgst + ": not found"), "content digest " + dgst + ": not found"},
		{errors.New(name + ": "), name + ": "},
	} {
		if got := words(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
	if got := shortDigest("pull web@"+dgst+": not found", dgst); got != "pull web@sha256:aaaaaaaaaaaa: not found" {
		t.Error(got)
	}
}

// An answer that gRPC gave up waiting for means that containerd does not answer, and the message has its socket.
func TestDown(t *testing.T) {
	s := &Store{cfg: Config{Socket: "/run/c.sock"}}
	for _, code := range []codes.Code{codes.Unavailable, codes.DeadlineExceeded} {
		if got := s.down(status.Error(code, "no connection")); !strings.Contains(got.Error(),
			"containerd at /run/c.sock does not answer") {
			t.Errorf("%s: %v", code, got)
		}
	}
	if other := status.Error(codes.NotFound, "no image"); !errors.Is(s.down(other), other) {
		t.Error("another error has changed")
	}
}
