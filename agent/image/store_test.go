package image_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/internal/testbed/ctrd"
	"github.com/outspan/outspan/model"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// daemonDir makes a directory with a short path for a containerd. It skips the test on machines that can't run one.
func daemonDir(t *testing.T) string {
	t.Helper()
	_, err := exec.LookPath("containerd")
	if err != nil || os.Geteuid() != 0 {
		if os.Getenv("OUTSPAN_E2E_REQUIRED") == "1" {
			t.Fatal("needs root and containerd")
		}
		t.Skip("skipped: needs root and containerd")
	}
	dir, err := os.MkdirTemp("", "ctrd-") //nolint:usetesting // a socket's path must be short
	must(t, err)
	return dir
}

// daemon starts a containerd for the test.
func daemon(t *testing.T) *ctrd.Daemon {
	t.Helper()
	dir := daemonDir(t)
	d, err := ctrd.Start(dir)
	must(t, err)
	t.Cleanup(func() {
		_ = d.Kill()
		must(t, os.RemoveAll(dir))
	})
	return d
}

func open(t *testing.T, cfg image.Config) (*image.Store, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	s, err := image.Open(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, ctx
}

// awaitDaemon waits until containerd answers the store.
func awaitDaemon(t *testing.T, s *image.Store) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		version, err := s.Check(t.Context())
		if err == nil && version != "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd does not answer: %q, %v", version, err)
		}
	}
}

// A store that was opened before containerd ran works once it runs.
func TestOpenedEarly(t *testing.T) {
	d := daemon(t)
	must(t, d.Kill())
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	_, err := s.Have(ctx, sample(t, "text").Digest)
	wantCode(t, err, image.CodeRuntimeDown, d.Socket)
	must(t, d.Restart())
	awaitDaemon(t, s)
	if have, err := s.Have(ctx, sample(t, "text").Digest); have || err != nil {
		t.Errorf("have = %v, %v", have, err)
	}
}

// Instances that need one image at the same time share one pull.
func TestPullOnce(t *testing.T) {
	d := daemon(t)
	one := sample(t, "one")
	registry := &ctrd.Registry{}
	registry.Push("web:1", one)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/blobs/"+one.Layer) {
			asked.Add(1)
			time.Sleep(200 * time.Millisecond)
		}
		registry.ServeHTTP(w, r)
	}))
	defer server.Close()
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	name := strings.TrimPrefix(server.URL, "http://") + "/web:1@" + one.Digest
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.Pull(ctx, name, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the layer was fetched %d times", n)
	}
}

func sample(t *testing.T, text string) ctrd.Image {
	t.Helper()
	i, err := ctrd.NewImage([]ctrd.File{{Name: "etc/", Mode: 0o755}, {Name: "etc/text", Mode: 0o644, Body: []byte(text)}},
		ctrd.Config{Entrypoint: []string{"/run"}, Cmd: []string{"a"}, Env: []string{"K=image"}, User: "app",
			StopSignal: "SIGQUIT"})
	must(t, err)
	return i
}

// served starts a registry with an image, and returns the image and its name there without a tag.
func served(t *testing.T) (one ctrd.Image, name string) {
	t.Helper()
	one = sample(t, "one")
	registry := &ctrd.Registry{}
	registry.Push("web:1", one)
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	return one, strings.TrimPrefix(server.URL, "http://") + "/web"
}

func wantCode(t *testing.T, err error, code model.Code, says string) {
	t.Helper()
	if !errors.Is(err, &model.Error{Code: code}) || !strings.Contains(err.Error(), says) {
		t.Fatalf("error = %v, want code %s saying %q", err, code, says)
	}
}

// A name is resolved through a mirror with credentials, pulled by digest, used as a root and removed.
func TestPull(t *testing.T) {
	d := daemon(t)
	one, two := sample(t, "one"), sample(t, "two")
	registry := &ctrd.Registry{User: "me", Password: "s:ecret"}
	registry.Push("team/web:1", one)
	server := httptest.NewServer(registry)
	defer server.Close()
	dir := t.TempDir()
	const host = "registry.test"
	must(t, os.MkdirAll(filepath.Join(dir, host), 0o755))
	hosts := "server = \"http://127.0.0.1:1\"\n[host.\"" + server.URL + "\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
	must(t, os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(hosts), 0o644))
	login := filepath.Join(dir, "config.json")
	auth := func(password string) {
		must(t, os.WriteFile(login, []byte(`{"auths": {"`+strings.TrimPrefix(server.URL, "http://")+`": {"auth": "`+
			base64.StdEncoding.EncodeToString([]byte("me:"+password))+`"}}}`), 0o600))
	}
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test", CertsDir: dir, DockerConfig: login})

	auth("wrong")
	_, err := s.Resolve(ctx, host+"/team/web:1")
	wantCode(t, err, image.CodeUnresolved, "401")
	auth("s:ecret")
	_, err = s.Resolve(ctx, host+"/team/web:2")
	wantCode(t, err, image.CodeUnresolved, "not found")
	_, err = s.Resolve(ctx, "Not A Name")
	wantCode(t, err, image.CodeInvalidName, "Not A Name")
	found, err := s.Resolve(ctx, host+"/team/web:1")
	must(t, err)
	want := image.Resolved{Ref: host + "/team/web@" + one.Digest, Digest: one.Digest,
		Platforms: []string{"linux/" + runtime.GOARCH}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Fatal(diff)
	}

	registry.Push("team/web:1", two) // the tag moves on, the digest is what is pulled
	wantCode(t, s.Pull(ctx, host+"/team/web:1", nil), image.CodeInvalidName, "no digest")
	wantCode(t, s.Pull(ctx, found.Ref, nil), image.CodeGone, "not found")
	registry.Push("team/old:1", one)
	registry.Push("team/web:0", one)
	if have, err := s.Have(ctx, one.Digest); have || err != nil {
		t.Fatalf("have = %v, %v", have, err)
	}
	must(t, s.Pull(ctx, found.Ref, nil))
	server.Close()
	must(t, s.Pull(ctx, found.Ref, nil)) // it is here, so the registry is not asked
	if have, err := s.Have(ctx, one.Digest); !have || err != nil {
		t.Fatalf("have = %v, %v", have, err)
	}
	defaults, err := s.Defaults(ctx, one.Digest)
	must(t, err)
	if defaults.User != "app" || defaults.StopSignal != "SIGQUIT" || !slices.Equal(defaults.Entrypoint, []string{"/run"}) {
		t.Errorf("defaults = %+v", defaults)
	}
}

// An instance's layer survives a restart of containerd and the removal of its image, and goes with Release.
func TestMounts(t *testing.T) {
	d := daemon(t)
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	i := sample(t, "text")
	archive, err := i.Archive("example.test/one:1")
	must(t, err)
	digests, err := s.Import(ctx, bytes.NewReader(archive))
	must(t, err)
	if !slices.Equal(digests, []string{i.Digest}) {
		t.Fatalf("imported %v, want %s", digests, i.Digest)
	}
	_, err = s.Mounts(ctx, "a", "sha256:"+strings.Repeat("0", 64))
	wantCode(t, err, image.CodeNotHere, "not on this node")
	first, err := s.Mounts(ctx, "a", i.Digest)
	must(t, err)
	again, err := s.Mounts(ctx, "a", i.Digest)
	must(t, err)
	if diff := cmp.Diff(first, again); diff != "" || len(first) == 0 {
		t.Errorf("asked again: %s", diff)
	}
	if done, err := image.Prune(ctx, s, false, func(string) bool { return false }); len(done.Deleted) > 0 || err != nil {
		t.Errorf("deleted %v, which is needed: %v", done.Deleted, err)
	}
	done, err := image.Prune(ctx, s, false, func(string) bool { return true })
	if len(done.Deleted) != 1 || done.Deleted[0].Digest != i.Digest || err != nil {
		t.Errorf("deleted %v, %v", done.Deleted, err)
	}
	must(t, d.Kill())
	down, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = s.Check(down)
	wantCode(t, err, image.CodeRuntimeDown, d.Socket)
	must(t, d.Restart())
	awaitDaemon(t, s)
	if list, err := s.Layers(ctx); !slices.Equal(list, []string{"a"}) || err != nil {
		t.Errorf("layers = %v, %v", list, err)
	}
	lower := first[0].Source
	for _, o := range first[0].Options {
		if v, ok := strings.CutPrefix(o, "lowerdir="); ok {
			lower = v
		}
	}
	if b, err := os.ReadFile(filepath.Join(lower, "etc", "text")); err != nil || string(b) != "text" {
		t.Errorf("the layer below has %q, %v", b, err)
	}
	must(t, s.Release(ctx, "a"))
	must(t, s.Release(ctx, "a"))
	if list, err := s.Layers(ctx); len(list) > 0 || err != nil {
		t.Errorf("layers left: %v, %v", list, err)
	}
	if list, err := s.List(ctx); len(list) > 0 || err != nil {
		t.Errorf("left: %v, %v", list, err)
	}
}

func TestMerge(t *testing.T) {
	d := image.Defaults{Entrypoint: []string{"/e"}, Cmd: []string{"c"}, Env: []string{"A=image", "B=image", "bad"},
		User: "u", StopSignal: "SIGINT"}
	for name, tt := range map[string]struct {
		o    image.Overrides
		argv []string
	}{
		"nothing":          {image.Overrides{}, []string{"/e", "c"}},
		"arguments":        {image.Overrides{Args: []string{"x"}}, []string{"/e", "x"}},
		"no arguments":     {image.Overrides{Args: []string{}}, []string{"/e"}},
		"entrypoint":       {image.Overrides{Entrypoint: []string{"/f"}}, []string{"/f"}},
		"both":             {image.Overrides{Entrypoint: []string{"/f"}, Args: []string{"x"}}, []string{"/f", "x"}},
		"empty entrypoint": {image.Overrides{Entrypoint: []string{}, Args: []string{"x"}}, []string{"x"}},
	} {
		tt.o.Env = map[string]string{"B": "job"}
		p := d.Merge(tt.o)
		want := image.Program{Argv: tt.argv, Env: map[string]string{"A": "image", "B": "job"}, User: "u", Dir: "/",
			StopSignal: "SIGINT"}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
