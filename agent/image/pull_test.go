package image_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// A pull that is given up leaves no lease and no unfinished layer in containerd, and a later one fetches the image.
func TestPullGivenUp(t *testing.T) {
	d := daemon(t)
	one := sample(t, "one")
	registry := &ctrd.Registry{}
	registry.Push("web:1", one)
	asked, free := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/blobs/"+one.Layer) {
			select {
			case asked <- struct{}{}:
				w.Header().Set("Content-Length", "100000")
				_, _ = w.Write([]byte("something")) // and then nothing more
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			case <-free:
			}
		}
		registry.ServeHTTP(w, r)
	}))
	defer server.Close()
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	name := strings.TrimPrefix(server.URL, "http://") + "/web:1@" + one.Digest
	pulling, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.Pull(pulling, name, nil) }()
	<-asked
	if got := listed(t, d, "leases", "list", "-q"); got != "pull-"+one.Digest {
		t.Errorf("leases during the pull: %s", got)
	}
	cancel()
	wantCode(t, <-ended, image.CodePullFailed, "given up")
	if got := listed(t, d, "leases", "list", "-q"); got != "" {
		t.Errorf("leases after the pull: %s", got)
	}
	close(free)
	must(t, s.Pull(ctx, name, nil))
	if got := listed(t, d, "leases", "list", "-q"); got != "" {
		t.Errorf("leases after another pull: %s", got)
	}
}

// listed returns what containerd's own client prints.
func listed(t *testing.T, d *ctrd.Daemon, args ...string) string {
	t.Helper()
	out, err := exec.Command("ctr", append([]string{"--address", d.Socket, "--namespace", "outspan-test"}, args...)...).
		CombinedOutput()
	if err != nil {
		t.Fatalf("ctr %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
