package image

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outspan/outspan/model"
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
	late := fmt.Errorf("list images: %w", context.DeadlineExceeded)
	if got := s.down(late); !errors.Is(got, &model.Error{Code: CodeRuntimeDown}) {
		t.Errorf("%v: %v", late, got)
	}
}

// A registry that can't be reached, or that never answers, is not containerd. The errors of both are deadlines too.
func TestSlowRegistry(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, because of its backlog, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := &Store{cfg: Config{Socket: "/run/c.sock"}}
	for name, tr := range map[string]*http.Transport{
		"answer":  {ResponseHeaderTimeout: time.Millisecond},
		"connect": {DialContext: (&net.Dialer{Timeout: time.Nanosecond}).DialContext},
	} {
		_, err := (&http.Client{Transport: tr}).Get("http://" + silent.Addr().String())
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: no deadline: %v", name, err)
		}
		if err = fmt.Errorf("failed to do request: %w", err); !errors.Is(s.down(err), err) {
			t.Errorf("%s: %v", name, s.down(err))
		}
		var inner *url.Error
		if errors.As(err, &inner); !errors.Is(s.down(inner.Err), inner.Err) { // as while a layer is read
			t.Errorf("%s: %v", name, s.down(inner.Err))
		}
	}
}
