package transfer

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// inBetween reports whether the node has sent a report about transfer id with the given state, in which some but not
// all bytes were done.
func (n *node) inBetween(id model.TransferID, state model.TransferState) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.told {
		if r.ID == id && r.State == state && r.Bytes > 0 && r.Bytes < r.Total {
			return true
		}
	}
	return false
}

// slowly is a ResponseWriter that pauses before each write.
type slowly struct {
	http.ResponseWriter
	pause time.Duration
}

// Write implements io.Writer.
func (s *slowly) Write(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the underlying writer.
func (s *slowly) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// While both sides read all data again to verify the copy, the target reports its progress, so that the servers don't
// consider the transfer stalled. In this test the source sends its sums slowly.
func TestVerifyTellsProgress(t *testing.T) {
	source, target, fetch := pair(t, 1<<20, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/sums") {
				w = &slowly{w, 2 * reportEvery / 20} // so 40 chunks take four times reportEvery
			}
			next.ServeHTTP(w, r)
		})
	})
	sparse := source.path(slotPath, "data", "sparse")
	file, err := os.Create(sparse)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(40) { // each chunk gets some data, because chunks that are only holes are not read
		if _, err := file.WriteAt([]byte("begins"), i*chunkBytes); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(file.Truncate(40*chunkBytes), file.Close()); err != nil {
		t.Fatal(err)
	}
	want := pictures(t, source.path(slotPath))
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideVerified)
	if !target.inBetween("t1", model.SideVerifying) {
		t.Error("nothing was told between the beginning and the end of the verification")
	}
	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	if got := pictures(t, target.path(slotPath)); got != want {
		t.Error("the copy differs")
	}
}

// For a sparse file of 100 GiB, a copy needs only the disk space that the file takes.
func TestHolesTakeNoRoom(t *testing.T) {
	n, slot := filled(t)
	sparse := n.path(slotPath, "data", "sparse")
	if err := os.WriteFile(sparse, []byte("begins"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 100<<30); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(slot)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m, err := newManifest(root, []string{"data", "log"})
	if err != nil {
		t.Fatal(err)
	}
	if used, size := usedBytes(m.Entries), newContent(nil, m.Entries).total(); used > 64<<20 || size < 100<<30 {
		t.Errorf("it takes %d bytes of %d", used, size)
	}
}

// A restore also reports its progress while it reads back the data that it wrote.
func TestRestoreTellsProgress(t *testing.T) {
	_, other, _, restore := backedUp(t, false)
	a, err := readArchive(other.backups+"/b1", "b1", restore.Sum)
	if err != nil {
		t.Fatal(err)
	}
	back := &task{TransferOrder: restore, m: other.current()}
	if err := back.beginStaging(nil, a.Bytes); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(back.staging(back.ID, "tree"))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	u := &unpacking{t: back, root: root, a: &a}
	if err := u.unpack(t.Context(), other.backups+"/b1/"+archiveData); err != nil {
		t.Fatal(err)
	}
	back.last = time.Time{} // the last report is long ago
	if err := u.verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !other.inBetween(back.ID, model.SideVerifying) {
		t.Error("nothing was told while the copy was read back")
	}
}
