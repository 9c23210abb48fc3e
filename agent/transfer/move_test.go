package transfer

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	slotPath = "db/main/0"
	large    = 64 << 20
)

// pair returns a source with volumes whose largest file has size bytes, a target, and the target's order to fetch these
// volumes. If through is not nil, it wraps the source's handler.
func pair(t *testing.T, size int64, through func(http.Handler) http.Handler) (source, target *node,
	fetch transport.TransferOrder) {
	t.Helper()
	source = newNode(t, nil)
	if err := os.MkdirAll(source.path(slotPath), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, source.path(slotPath), size)
	address, peers := source.listen(through)
	source.peers = peers
	target = newNode(t, peers)
	fetch = order(transport.TaskFetch, "t1")
	fetch.Peer = address
	return source, target, fetch
}

// proves P8: a move keeps every byte, mode, time and link; the copy is beside the volumes until it is attached, and the
// old copy is kept until the servers order to drop it.
func TestMigrate(t *testing.T) {
	source, target, fetch := pair(t, large, nil)
	want := pictures(t, source.path(slotPath))
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	done := target.await("t1", model.SideVerified)
	if len(done.Sum) != 64 || done.Bytes != done.Total || done.Total < large {
		t.Errorf("report %+v", done)
	}
	if exists(target.path(slotPath, "data")) {
		t.Error("the copy is where instances find it before it was attached")
	}

	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	source.order(order(transport.TaskRetire, "t1"))
	source.await("t1", model.SideRetired)
	if got := pictures(t, target.path(slotPath)); got != want {
		t.Errorf("the copy differs: %s", cmp.Diff(want, got))
	}
	if exists(source.path(slotPath, "data")) || picturesAside(t, source.path(slotPath)) != want {
		t.Error("the old copy was not put aside as it was")
	}

	target.order()
	source.order()
	target.stop()
	target.start() // after a restart, a repeated order must change nothing
	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	if got := pictures(t, target.path(slotPath)); got != want {
		t.Error("attaching again changed the copy")
	}
	source.order(order(transport.TaskDrop, "t1"))
	source.await("t1", model.SideDropped)
	if exists(source.path(slotPath, "data@1")) || exists(source.path(slotPath, "log@1")) {
		t.Error("the old copy is still there")
	}
}

// An interrupted copy resumes at the first chunk that has not arrived or that the disk has lost. Earlier chunks are not
// sent again.
func TestMigrateResumes(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]int{}
	cut := make(chan struct{})
	source, target, fetch := pair(t, large, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			sent[r.URL.RawQuery]++
			first := r.URL.RawQuery == "n=9" && sent["n=9"] == 1
			mu.Unlock()
			if first {
				close(cut)
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	<-cut
	target.stop()
	damaged := target.path(stagingDir, "t1", "tree", "data", "base", "1", "large")
	f, err := os.OpenFile(damaged, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("lost by the disk"), 7*chunkBytes+5); err != nil {
		t.Fatal(err)
	}
	f.Close()
	target.start()
	target.order(fetch)
	target.await("t1", model.SideVerified)
	mu.Lock()
	defer mu.Unlock()
	for n, want := range map[string]int{"n=0": 1, "n=6": 1, "n=7": 2, "n=8": 2, "n=9": 2, "n=10": 1} {
		if sent[n] != want {
			t.Errorf("chunk %s was sent %d times, want %d", n, sent[n], want)
		}
	}
}

// If the source restarts during a move, the target waits for the source and resumes.
func TestMigrateSourceRestarts(t *testing.T) {
	source, target, fetch := pair(t, large, nil)
	want := pictures(t, source.path(slotPath))
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideCopying, model.SideVerifying, model.SideVerified)
	source.stop()
	source.start()
	source.order(order(transport.TaskServe, "t1"))
	target.await("t1", model.SideVerified)
	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	if got := pictures(t, target.path(slotPath)); got != want {
		t.Errorf("the copy differs: %s", cmp.Diff(want, got))
	}
}

// failure waits until the node reports that a transfer failed, and returns that report.
func (n *node) failure(id model.TransferID) model.TransferReport {
	n.t.Helper()
	return n.await(id, model.SideFailed)
}

// A chunk that arrives damaged every time fails the move, and the error names the file.
func TestMigrateDamagedOnTheWay(t *testing.T) {
	source, target, fetch := pair(t, 9<<20, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&flipping{ResponseWriter: w, on: r.URL.RawQuery == "n=1"}, r)
		})
	})
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	r := target.failure("t1")
	if r.Code != model.CodeIntegrity || !strings.Contains(r.Message, "chunk 1 (data/base/1/large at byte 4194") {
		t.Errorf("%s: %s", r.Code, r.Message)
	}
	if exists(target.path(stagingDir, "t1", "verified")) {
		t.Error("a damaged copy is marked as verified")
	}
	target.order() // the servers gave the transfer up
	target.order(transport.TransferOrder{ID: "t2", Task: transport.TaskKeep, Group: "db/main", Names: []string{"data"}})
	waitGone(t, target.path(stagingDir, "t1"))
}

type flipping struct {
	http.ResponseWriter
	on bool
}

// Write implements io.Writer.
func (f *flipping) Write(p []byte) (int, error) {
	if f.on && len(p) > 100 {
		p = append([]byte(nil), p...)
		p[100] ^= 1
	}
	return f.ResponseWriter.Write(p)
}

// If the target's disk loses data that was written to it, the move fails before the copy is attached.
func TestMigrateDamagedOnDisk(t *testing.T) {
	var source, target *node
	var fetch transport.TransferOrder
	source, target, fetch = pair(t, 9<<20, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/sums") {
				f, err := os.OpenFile(target.path(stagingDir, "t1", "tree", "log", "150"), os.O_WRONLY, 0)
				if err == nil {
					_, err = f.WriteAt([]byte("x"), 3)
					f.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	if r := target.failure("t1"); r.Code != model.CodeIntegrity ||
		!strings.Contains(r.Message, "differs between the source and the copy") {
		t.Errorf("%s: %s", r.Code, r.Message)
	}
}

// A copy is not marked as verified if somebody writes to the source's volumes during the move.
func TestMigrateSourceWritten(t *testing.T) {
	var source, target *node
	var fetch transport.TransferOrder
	written := make(chan struct{})
	var once sync.Once
	source, target, fetch = pair(t, 9<<20, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/sums") {
				if err := os.WriteFile(source.path(slotPath, "log", "100"), []byte("written by somebody"), 0o600); err != nil {
					t.Error(err)
				}
				defer once.Do(func() { close(written) })
			}
			next.ServeHTTP(w, r)
		})
	})
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	<-written
	target.stop() // the target would try again until the servers give up
	target.start()
	if exists(target.path(stagingDir, "t1", "verified")) {
		t.Error("a copy of what changed is marked as verified")
	}
}

// A client gets data only with the token of the transfer.
func TestServeAsksForTheToken(t *testing.T) {
	source, _, fetch := pair(t, 1<<20, nil)
	source.order(order(transport.TaskServe, "t1"))
	source.await("t1", model.SideServing)
	address, peers := fetch.Peer, source.peers
	for token, want := range map[string]int{"secret": 200, "guess": 403, "": 403} {
		req, _ := http.NewRequest(http.MethodGet, "https://"+address+transport.PathAgentTransfer+"t1/manifest", http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := peers.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: status %d, want %d", token, resp.StatusCode, want)
		}
	}
}

// The source does not hand out volumes that an instance uses.
func TestServeWaitsForTheInstance(t *testing.T) {
	source, _, _ := pair(t, 1<<20, nil)
	if user := source.hold([]model.VolumeID{"db/main/0/data"}, "inst"); user != "" {
		t.Fatal(user)
	}
	source.order(order(transport.TaskServe, "t1"))
	if s, err := source.mover.authorised(httptestRequest()); err == nil {
		t.Fatalf("handed out while an instance uses them: %v", s)
	}
	source.release("inst")
	source.await("t1", model.SideServing)
}

// A peer can't make the target write outside of the copy.
func TestManifestIsChecked(t *testing.T) {
	dir, file := uint32(os.ModeDir|0o700), uint32(0o600)
	for name, entries := range map[string][]entry{
		"up":       {{Path: "data", Mode: dir}, {Path: "log", Mode: dir}, {Path: "../x", Mode: file}},
		"absolute": {{Path: "data", Mode: dir}, {Path: "log", Mode: dir}, {Path: "/etc/x", Mode: file}},
		"below a link": {{Path: "data", Mode: dir}, {Path: "data/l", Mode: uint32(os.ModeSymlink), Link: "/etc"},
			{Path: "data/l/x", Mode: file}, {Path: "log", Mode: dir}},
		"twice": {{Path: "data", Mode: dir}, {Path: "data/x", Mode: file}, {Path: "data/x", Mode: file},
			{Path: "log", Mode: dir}},
		"other volume":   {{Path: "data", Mode: dir}, {Path: "log", Mode: dir}, {Path: "other", Mode: dir}},
		"volume missing": {{Path: "data", Mode: dir}},
		"no directory":   {{Path: "data", Mode: file}, {Path: "log", Mode: dir}},
		"negative":       {{Path: "data", Mode: dir}, {Path: "data/x", Mode: file, Size: -1}, {Path: "log", Mode: dir}},
		"device": {{Path: "data", Mode: dir}, {Path: "data/x", Mode: uint32(os.ModeDevice)},
			{Path: "log", Mode: dir}},
	} {
		m := manifest{Names: []string{"data", "log"}, Entries: entries, Chunk: chunkBytes}
		var raw bytes.Buffer
		if err := m.write(&raw); err != nil {
			t.Fatal(err)
		}
		if _, err := readManifest(&raw, []string{"data", "log"}, maxList); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func httptestRequest() *http.Request {
	r := httptest.NewRequest(http.MethodGet, transport.PathAgentTransfer+"t1/manifest", http.NoBody)
	r.SetPathValue("id", "t1")
	r.Header.Set("Authorization", "Bearer secret")
	return r
}

func waitGone(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); exists(path); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", path)
		}
	}
}
