package transfer

import (
	"bytes"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const sparseSize = 1 << 40

// makeSparse makes a file of sparseSize bytes that has data only at the offsets of sparseData.
func makeSparse(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range sparseData {
		if _, err := f.WriteAt([]byte("here is data"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(sparseSize); err != nil {
		t.Fatal(err)
	}
}

// sparseData has offsets at the beginning of the file, just before the border of two chunks, in the middle, and at the
// end.
var sparseData = []int64{0, 5*chunkBytes - 6, sparseSize/2 + 17, sparseSize - 12}

// checkSparse checks that a file has the size and the data of makeSparse, and takes little disk space.
func checkSparse(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != sparseSize {
		t.Fatalf("%v, %v: want %d bytes", info, err, int64(sparseSize))
	}
	buf := make([]byte, 2*chunkBytes)
	for _, at := range sparseData {
		from := max(0, at-chunkBytes)
		n, _ := f.ReadAt(buf, from)
		around := bytes.Replace(buf[:n], []byte("here is data"), make([]byte, 12), 1)
		if bytes.Index(buf[:n], []byte("here is data")) != int(at-from) || !zero(around) {
			t.Errorf("what is around byte %d differs", at)
		}
	}
	wantSmall(t, path)
}

// wantSmall checks that a file takes at most 256 MiB of disk space, whatever its size.
func wantSmall(t *testing.T, path string) {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil || st.Blocks*512 > 256<<20 {
		t.Errorf("%s takes %d MiB (%v)", path, st.Blocks*512>>20, err)
	}
}

// A move, a backup and a restore skip the holes of a large file. They don't read, send or write zeros for the holes.
// The move resumes after both agents were restarted.
func TestSparseVolume(t *testing.T) {
	var sent, asked atomic.Int64
	source, target, fetch := pair(t, 1<<20, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/chunk") {
				w, _ = &counting{w, &sent}, asked.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	makeSparse(t, source.path(slotPath, "data", "sparse"))
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideCopying)
	for _, n := range []*node{target, source} {
		n.stop()
		n.start()
	}
	source.order(order(transport.TaskServe, "t1"))
	target.order(fetch)
	target.await("t1", model.SideVerified)
	target.order(order(transport.TaskAttach, "t1"))
	target.await("t1", model.SideAttached)
	checkSparse(t, target.path(slotPath, "data", "sparse"))
	if sent.Load() > 256<<20 || asked.Load() > 100 {
		t.Errorf("%d chunks were asked for, %d MiB sent", asked.Load(), sent.Load()>>20)
	}

	backup := order(transport.TaskBackup, "b1")
	source.order(backup)
	done := source.await("b1", model.SideVerified)
	wantSmall(t, source.backups+"/b1/"+archiveData)
	other := newNode(t, nil)
	other.stop()
	other.backups = source.backups
	other.start()
	restore := order(transport.TaskRestore, "r1")
	restore.Backup, restore.Sum = "b1", done.Sum
	other.order(restore)
	other.await("r1", model.SideVerified)
	checkSparse(t, other.path(stagingDir, "r1", "tree", "data", "sparse"))
}

// counting adds the bytes of an answer to n.
type counting struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write implements io.Writer.
func (c *counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }
