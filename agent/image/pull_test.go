package image_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
				whole := httptest.NewRecorder()
				registry.ServeHTTP(whole, r)
				w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()))
				_, _ = w.Write(whole.Body.Bytes()[:9]) // and then nothing more
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
	if got := listed(t, d, "leases", "list", "-q"); !strings.HasPrefix(got, "pull-"+one.Digest+"-") {
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

// A pull that takes longer than it may keeps the blobs that it has, and the next try fetches only the others.
func TestPullGoesOn(t *testing.T) {
	d := daemon(t)
	one := sample(t, "one")
	registry := &ctrd.Registry{}
	registry.Push("web:1", one)
	var configs atomic.Int64
	asked, free := make(chan struct{}, 8), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/blobs/"+one.Layer):
			asked <- struct{}{}
			select {
			case <-r.Context().Done():
				return
			case <-free:
			}
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
			configs.Add(1)
		}
		registry.ServeHTTP(w, r)
	}))
	defer server.Close()
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	name := strings.TrimPrefix(server.URL, "http://") + "/web:1@" + one.Digest
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	wantCode(t, s.Pull(short, name, nil), image.CodePullFailed, "given up")
	<-asked
	kept := listed(t, d, "leases", "list", "-q")
	if !strings.HasPrefix(kept, "pull-"+one.Digest+"-") {
		t.Errorf("leases after the deadline: %s", kept)
	}
	close(free)
	must(t, s.Pull(ctx, name, nil))
	if n := configs.Load(); n != 1 {
		t.Errorf("the configuration was fetched %d times", n)
	}
	if got := listed(t, d, "leases", "list", "-q"); got != "" {
		t.Errorf("leases after the pull: %s", got)
	}
}

// Only the registry can say that it does not have an image, not containerd, which misses the lease of the pull here.
func TestLeaseGone(t *testing.T) {
	d := daemon(t)
	one := sample(t, "one")
	registry := &ctrd.Registry{}
	registry.Push("web:1", one)
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { listed(t, d, "leases", "delete", listed(t, d, "leases", "list", "-q")) })
		registry.ServeHTTP(w, r)
	}))
	defer server.Close()
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	err := s.Pull(ctx, strings.TrimPrefix(server.URL, "http://")+"/web:1@"+one.Digest, nil)
	wantCode(t, err, image.CodePullFailed, "lease")
}

// hanging returns the address of a registry that never sends the layer of its image web, and a channel that gets a
// value when somebody asks for it.
func hanging(t *testing.T, i ctrd.Image) (host string, asked <-chan struct{}) {
	t.Helper()
	registry := &ctrd.Registry{}
	registry.Push("web:1", i)
	wanted := make(chan struct{}, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/blobs/"+i.Layer) {
			wanted <- struct{}{}
			<-r.Context().Done()
			return
		}
		registry.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), wanted
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
