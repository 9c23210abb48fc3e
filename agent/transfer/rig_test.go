package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is the part of one agent that moves volumes: a Mover, its directories, and the reports that it sent.
type node struct {
	t       *testing.T
	dir     string
	backups string
	peers   http.RoundTripper

	owner    Account // what Config.Owner returns
	refused  error   // the error that Config.Owner returns
	mayRunAs map[int]Account

	mover *Mover
	stop  func()

	mu      sync.Mutex
	held    map[model.VolumeID]model.InstanceID
	reports map[model.TransferID]model.TransferReport
	told    []model.TransferReport // every report, the oldest first
	changed chan struct{}
}

func newNode(t *testing.T, peers http.RoundTripper) *node {
	n := &node{
		t: t, dir: filepath.Join(t.TempDir(), "volumes"), backups: t.TempDir(), peers: peers,
		held:    map[model.VolumeID]model.InstanceID{},
		reports: map[model.TransferID]model.TransferReport{}, changed: make(chan struct{}),
		owner: Account{UID: os.Getuid(), Groups: []int{os.Getgid()}},
	}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

// start starts a new Mover on the node's directories, as a restart of the agent does.
func (n *node) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m := New(Config{Volumes: n.dir, BackupDir: n.backups, Peers: n.peers, Hold: n.hold, Release: n.release,
		Owner: n.ownerOf, MayRunAs: n.account, Report: n.report, Log: hclog.NewNullLogger()})
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Run(ctx) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mover, n.stop = m, func() { cancel(); wg.Wait() }
}

func (n *node) ownerOf(model.GroupID, int, string) (Account, error) { return n.owner, n.refused }

func (n *node) account(uid int) (Account, bool) {
	a, ok := n.mayRunAs[uid]
	return a, ok
}

// current returns the Mover that runs, or the last one that ran.
func (n *node) current() *Mover {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mover
}

func (n *node) hold(ids []model.VolumeID, holder model.InstanceID) model.InstanceID {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range ids {
		if h, ok := n.held[id]; ok && h != holder {
			return h
		}
	}
	for _, id := range ids {
		n.held[id] = holder
	}
	return ""
}

func (n *node) release(holder model.InstanceID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, h := range n.held {
		if h == holder {
			delete(n.held, id)
		}
	}
}

func (n *node) report(r model.TransferReport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports[r.ID], n.told = r, append(n.told, r)
	close(n.changed)
	n.changed = make(chan struct{})
}

// await waits until the node's last report about transfer id has one of the states, and returns that report. It fails
// the test after 60 s, or if the transfer fails and SideFailed is not one of the states.
func (n *node) await(id model.TransferID, states ...model.TransferState) model.TransferReport {
	n.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		n.mu.Lock()
		r, changed := n.reports[id], n.changed
		n.mu.Unlock()
		for _, s := range states {
			if r.State == s {
				return r
			}
		}
		if r.State == model.SideFailed {
			n.t.Fatalf("transfer %s failed: %s: %s", id, r.Code, r.Message)
		}
		select {
		case <-changed:
		case <-deadline:
			n.t.Fatalf("transfer %s is %q, want one of %q", id, r.State, states)
		}
	}
}

func (n *node) order(orders ...transport.TransferOrder) { n.current().Set(orders, false) }

func (n *node) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

// listen serves the node's volumes over TLS until the test ends. It returns the address, and a transport that trusts
// the server's certificate. If through is not nil, it wraps the handler.
func (n *node) listen(through func(http.Handler) http.Handler) (address string, peers http.RoundTripper) {
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.current().Handler().ServeHTTP(w, r)
	}))
	if through != nil {
		h = through(h)
	}
	s := httptest.NewTLSServer(h)
	n.t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://"), s.Client().Transport
}

// order returns an order for the volumes that fill makes. Their data has epoch 1. TaskAttach gives the data epoch 2.
func order(task transport.TransferTask, id model.TransferID) transport.TransferOrder {
	o := transport.TransferOrder{ID: id, Task: task, Group: "db/main", Slot: 0, Names: []string{"data", "log"},
		Token: "secret", Wall: 1, Epochs: []uint64{1, 1}}
	if task == transport.TaskAttach {
		o.Epoch, o.Epochs = 2, nil
	}
	return o
}

// fill makes the volumes "data" and "log" of a slot. The first has a large file of size bytes with a run of zeros, and
// files of unusual kinds. The second has many small files.
func fill(t *testing.T, slot string, size int64) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(size)))
	put := func(name string, mode fs.FileMode, data []byte) {
		if err := os.WriteFile(filepath.Join(slot, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(slot, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"data/base/1", "data/empty dir", "log"} {
		if err := os.MkdirAll(filepath.Join(slot, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	setEpochs(t, slot, "1")
	large := make([]byte, size)
	for i := 0; i+8 <= len(large); i += 8 {
		if i < len(large)/3 || i > len(large)/2 { // zeros in between
			v := r.Uint64()
			for b := range 8 {
				large[i+b] = byte(v >> (8 * b))
			}
		}
	}
	put("data/base/1/large", 0o640, large)
	put("data/empty", 0o444, nil)
	put("data/-odd\nname", fs.ModeSetuid|0o755, []byte("odd"))
	for i := range 200 {
		put(fmt.Sprintf("log/%03d", i), 0o600, bytes.Repeat([]byte{byte(i + 1)}, i*37))
	}
	for name, to := range map[string]string{"data/link": "base/1/large", "data/away": "/etc/passwd"} {
		if err := os.Symlink(to, filepath.Join(slot, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(slot, "data", "base"), 0o750); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_600_000_000, 123456789)
	if err := os.Chtimes(filepath.Join(slot, "data", "base", "1", "large"), at, at); err != nil {
		t.Fatal(err)
	}
}

// setEpochs sets the epoch of both volumes of a slot.
func setEpochs(t *testing.T, slot, epoch string) {
	t.Helper()
	for _, name := range []string{"data", "log"} {
		if err := SetEpoch(filepath.Join(slot, name), epoch); err != nil {
			t.Fatal(err)
		}
	}
}

// picture describes everything in a tree that must survive a move.
func picture(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintf(&out, "%q %s", rel, info.Mode()&^(fs.ModeSetuid|fs.ModeSetgid)) // a move drops these bits
		switch {
		case info.Mode().IsRegular():
			f, err := os.Open(p)
			if err != nil {
				return err
			}
			defer f.Close()
			h := sha256.New()
			if _, err := io.Copy(h, f); err != nil {
				return err
			}
			fmt.Fprintf(&out, " %d %s %x", info.Size(), info.ModTime().UTC(), h.Sum(nil))
		case d.Type() == fs.ModeSymlink:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " -> %s", to)
		}
		out.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func pictures(t *testing.T, slot string) string {
	t.Helper()
	return picture(t, filepath.Join(slot, "data")) + picture(t, filepath.Join(slot, "log"))
}

// picturesAside is like pictures, but describes the data of epoch 1 that was put aside.
func picturesAside(t *testing.T, slot string) string {
	t.Helper()
	return picture(t, filepath.Join(slot, "data@1")) + picture(t, filepath.Join(slot, "log@1"))
}
