package image_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// smallDaemon is daemon with a disk of its own.
func smallDaemon(t *testing.T, bytes int64) *ctrd.Daemon {
	t.Helper()
	dir := daemonDir(t)
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)))
	t.Cleanup(func() {
		must(t, unix.Unmount(dir, 0))
		must(t, os.Remove(dir))
	})
	d, err := ctrd.Start(dir)
	must(t, err)
	t.Cleanup(func() { _ = d.Kill() })
	return d
}

// filled is an image with a layer of this many bytes.
func filled(t *testing.T, seed uint64, bytes int) ctrd.Image {
	t.Helper()
	body := make([]byte, bytes)
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // bytes of a test
	for i := range body {
		body[i] = byte(r.Uint32())
	}
	i, err := ctrd.NewImage([]ctrd.File{{Name: "body", Mode: 0o644, Body: body}}, ctrd.Config{})
	must(t, err)
	return i
}

const mib = 1 << 20

// Images are deleted when the disk is fuller than the high mark, the least recently used first, until it is not fuller
// than the low mark. An image that is needed stays, and so do the layers below those of instances.
func TestClean(t *testing.T) {
	d := smallDaemon(t, 64*mib)
	registry := &ctrd.Registry{}
	server := httptest.NewServer(registry)
	defer server.Close()
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	var digests []string
	for n := range 3 { // each takes 6 MiB of content and 6 MiB unpacked
		i := filled(t, uint64(n), 6*mib)
		registry.Push(fmt.Sprintf("app%d:1", n), i)
		must(t, s.Pull(ctx, fmt.Sprintf("%s/app%d@%s", strings.TrimPrefix(server.URL, "http://"), n, i.Digest), nil))
		digests = append(digests, i.Digest)
		time.Sleep(1100 * time.Millisecond) // times of use have seconds
	}
	full, err := s.Disk(ctx)
	must(t, err)
	if full.Used < 36*mib || full.Total > 64*mib || !strings.HasPrefix(full.Path, strings.TrimSuffix(d.Socket, "/s")) {
		t.Fatalf("the disk is %+v", full)
	}
	survey, err := s.Survey(ctx)
	must(t, err)
	if len(survey.Images) != 3 || survey.Images[0].Bytes() < 12*mib || survey.Images[0].Bytes() > 13*mib {
		t.Fatalf("the images are %+v", survey.Images)
	}

	asked := []string{}
	leave := func(digest string) bool {
		asked = append(asked, digest)
		return digest != digests[0] // which is needed
	}
	below := image.Marks{High: full.Percent(), Low: 1}
	done, err := image.Clean(ctx, s, below, leave)
	must(t, err)
	if len(done.Deleted) != 0 || len(asked) != 0 {
		t.Fatalf("below the high mark, %v were deleted", done.Deleted)
	}
	above := image.Marks{High: full.Percent() - 1, Low: full.Percent() - 2}
	done, err = image.Clean(ctx, s, above, leave)
	must(t, err)
	if !slices.Equal(asked, digests[:2]) {
		t.Errorf("asked about %v, want the two least recently used of %v", asked, digests)
	}
	if len(done.Deleted) != 1 || done.Deleted[0].Digest != digests[1] || done.Bytes < 12*mib {
		t.Errorf("deleted %v, %d bytes", done.Deleted, done.Bytes)
	}
	if got := full.Used - done.Disk.Used; got < 11*mib || done.Disk.Percent() > above.Low {
		t.Errorf("the disk has %d bytes less, and is %d%% full", got, done.Disk.Percent())
	}

	_, err = s.Mounts(ctx, "a", digests[2]) // an instance of the last one
	must(t, err)
	done, err = image.Prune(ctx, s, true, leave)
	must(t, err)
	if len(done.Deleted) != 1 || done.Bytes < 6*mib || done.Bytes > 7*mib { // the unpacked layer stays
		t.Errorf("a dry run would delete %v, %d bytes", done.Deleted, done.Bytes)
	}
	if have, err := s.Have(ctx, digests[2]); !have || err != nil {
		t.Fatalf("a dry run deletes: %v, %v", have, err)
	}
	done, err = image.Prune(ctx, s, false, leave)
	must(t, err)
	if list, err := s.List(ctx); !slices.Equal(list, digests[:1]) || err != nil {
		t.Errorf("left are %v, %v, want %s", list, err, digests[0])
	}
	if list, err := s.Layers(ctx); !slices.Equal(list, []string{"a"}) || err != nil {
		t.Errorf("layers = %v, %v", list, err)
	}
}

// An image that is in use is marked, so that it is not the least recently used one, also after a restart.
func TestMarkUsed(t *testing.T) {
	d := daemon(t)
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	archive, err := sample(t, "one").Archive("example.test/one:1")
	must(t, err)
	_, err = s.Import(ctx, bytes.NewReader(archive))
	must(t, err)
	before, err := s.Survey(ctx)
	must(t, err)
	got := before.Images[0]
	if !slices.Equal(got.Names, []string{"example.test/one:1"}) || time.Since(got.Used) > time.Minute {
		t.Errorf("the image is %+v", got)
	}
	s.SetUsed(ctx, t, time.Now().Add(-time.Hour))
	must(t, s.MarkUsed(ctx, func(string) bool { return false }))
	old, err := s.Survey(ctx)
	must(t, err)
	if time.Since(old.Images[0].Used) < 59*time.Minute {
		t.Errorf("an image that is not in use was last used at %s", old.Images[0].Used)
	}
	must(t, s.MarkUsed(ctx, func(string) bool { return true }))
	again, _ := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	now, err := again.Survey(ctx)
	must(t, err)
	if time.Since(now.Images[0].Used) > time.Minute {
		t.Errorf("an image in use was last used at %s", now.Images[0].Used)
	}
}

// An image is not deleted while it is pulled, and not pulled while it is deleted.
func TestRemoveOrPull(t *testing.T) {
	s, ctx := open(t, image.Config{Socket: daemon(t).Socket, Namespace: "outspan-test"})
	one, name := served(t)
	name += "@" + one.Digest
	must(t, s.Pull(ctx, name, nil))
	pulled := make(chan error, 1)
	gone, err := s.Remove(ctx, one.Digest, func() bool {
		go func() { pulled <- s.Pull(ctx, name, nil) }()
		select {
		case err := <-pulled:
			t.Errorf("a pull ended during the deletion: %v", err)
			pulled <- err
		case <-time.After(300 * time.Millisecond):
		}
		return true
	})
	if !gone || err != nil {
		t.Fatalf("removed = %v, %v", gone, err)
	}
	must(t, <-pulled)
	if have, err := s.Have(ctx, one.Digest); !have || err != nil {
		t.Errorf("after the pull, have = %v, %v", have, err)
	}
}

// A pull that hangs keeps its own image, and blocks the deletion of no other one.
func TestRemoveDoesNotWaitForAPull(t *testing.T) {
	d := daemon(t)
	two := sample(t, "two")
	host, asked := hanging(t, two)
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	pulling, stop := context.WithCancel(ctx)
	pulled := make(chan error, 1)
	go func() { pulled <- s.Pull(pulling, host+"/web@"+two.Digest, nil) }()
	<-asked
	began := time.Now()
	gone, err := s.Remove(ctx, two.Digest, func() bool { t.Error("asked to leave"); return true })
	if gone || err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("removed = %v, %v after %s", gone, err, time.Since(began))
	}
	stop()
	if err := <-pulled; err == nil {
		t.Error("the pull did not hang")
	}
}

// What an earlier process left in the middle of a pull is not kept, but what belongs to instances is.
func TestAbandon(t *testing.T) {
	d := daemon(t)
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	archive, err := sample(t, "one").Archive("example.test/one:1")
	must(t, err)
	digests, err := s.Import(ctx, bytes.NewReader(archive))
	must(t, err)
	_, err = s.Mounts(ctx, "a", digests[0])
	must(t, err)
	must(t, s.Lease(ctx, "pull-of-an-earlier-process"))
	must(t, s.Lease(ctx, "of-somebody"))
	two := sample(t, "two") // its pull was under way, and the next process begins it again
	dying, dead := context.WithCancel(ctx)
	registry, begun := hanging(t, two)
	first := make(chan error, 1)
	go func() { first <- s.Pull(dying, registry+"/web@"+two.Digest, nil) }()
	defer func() {
		dead()
		<-first
	}()
	<-begun
	next, _ := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	pulling, cancel := context.WithCancel(ctx)
	second := make(chan error, 1)
	go func() { second <- next.Pull(pulling, registry+"/web@"+two.Digest, nil) }()
	own := ""
	for deadline := time.Now().Add(20 * time.Second); own == "" && time.Now().Before(deadline); {
		leases, err := next.Leases(ctx)
		must(t, err)
		if n := slices.IndexFunc(leases, next.OwnLease); n >= 0 {
			own = leases[n]
		}
	}
	var asked []string
	is := func(wanted bool) func(string) bool {
		return func(digest string) bool {
			asked = append(asked, digest)
			return wanted
		}
	}
	want := func(when string, want ...string) {
		t.Helper()
		leases, err := next.Leases(ctx)
		must(t, err)
		if !slices.Equal(leases, want) {
			t.Errorf("%s: leases %v, want %v", when, leases, want)
		}
	}
	must(t, next.Abandon(ctx, is(false)))
	if own == "" || len(asked) > 0 {
		t.Errorf("own pull %q, asked about %v", own, asked)
	}
	want("while it is pulled", "instance-a", "of-somebody", own)
	three := sample(t, "three") // its registry is down
	wantCode(t, next.Pull(ctx, "127.0.0.1:1/web@"+three.Digest, nil), image.CodePullFailed, "refused")
	must(t, next.Abandon(ctx, is(true)))
	failed := "pull-" + three.Digest + strings.TrimPrefix(own, "pull-"+two.Digest)
	all := []string{"instance-a", "of-somebody", own, failed}
	slices.Sort(all)
	want("after a failed pull", all...)
	must(t, next.Abandon(ctx, is(false)))
	want("after a failed pull that nothing wants", "instance-a", "of-somebody", own)
	if !slices.Equal(asked, []string{three.Digest, three.Digest}) {
		t.Errorf("asked about %v", asked)
	}
	cancel()
	wantCode(t, <-second, image.CodePullFailed, "given up")
	must(t, next.Release(ctx, "a"))
	if list, err := next.Layers(ctx); len(list) > 0 || err != nil {
		t.Errorf("layers after the release: %v, %v", list, err)
	}
}

// Of two images that are pulled at the same time, each has a progress of its own.
func TestProgressOfEach(t *testing.T) {
	d := daemon(t)
	registry := &ctrd.Registry{}
	sends := map[string]int{} // how many bytes of a layer come before the registry hangs, by digest
	var names []string
	for n, first := range []int{3 * mib, mib} {
		i := filled(t, uint64(10+n), 4*mib)
		registry.Push(fmt.Sprintf("app%d:1", n), i)
		sends[i.Layer] = first
		names = append(names, fmt.Sprintf("/app%d@%s", n, i.Digest))
	}
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, layer, _ := strings.Cut(r.URL.Path, "/blobs/")
		first := sends[layer]
		if first == 0 {
			registry.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		registry.ServeHTTP(whole, r)
		w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()))
		_, _ = w.Write(whole.Body.Next(first))
		w.(http.Flusher).Flush() //nolint:forcetypeassert // that of net/http is one
		<-release
		_, _ = w.Write(whole.Body.Bytes())
	}))
	defer server.Close()
	s, ctx := open(t, image.Config{Socket: d.Socket, Namespace: "outspan-test"})
	var fetched [2]atomic.Int64
	var pulls sync.WaitGroup
	for n, name := range names {
		pulls.Go(func() {
			if err := s.Pull(ctx, strings.TrimPrefix(server.URL, "http://")+name, fetched[n].Store); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(40 * time.Second); fetched[0].Load() < 2*mib || fetched[1].Load() == 0; {
		if time.Now().After(deadline) {
			t.Errorf("the progress is %d and %d bytes", fetched[0].Load(), fetched[1].Load())
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if most := fetched[1].Load(); most > 2*mib {
		t.Errorf("the second image has %d bytes, and 1 MiB of its layer was sent", most)
	}
	close(release)
	pulls.Wait()
}
