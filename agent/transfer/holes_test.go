package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// The output of chunked equals its input, even where the input is a slice of zeroBytes.
func TestChunkedGivesWhatItTook(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var in, out bytes.Buffer
	c := &chunked{take: func(chunk []byte) error {
		if len(chunk) != chunkBytes && in.Len() != out.Len()+len(chunk) {
			t.Errorf("a chunk of %d bytes before the end", len(chunk))
		}
		out.Write(chunk)
		return nil
	}}
	for range 60 {
		piece := zeroBytes()[:r.IntN(chunkBytes+1)]
		if r.IntN(2) == 0 {
			piece = bytes.Repeat([]byte{byte(r.IntN(3))}, r.IntN(chunkBytes*2))
		}
		in.Write(piece)
		if n, err := c.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(in.Bytes(), out.Bytes()) {
		t.Errorf("%d bytes went in, %d came out, and they differ", in.Len(), out.Len())
	}
	if !zero(zeroBytes()[:chunkBytes:chunkBytes]) || bytes.Count(zeroBytes(), []byte{0}) != chunkBytes {
		t.Error("somebody wrote into the zeros that all share")
	}
}

// The sums of chunks are the same whether holes are skipped or read. The files are random, so holes begin and end
// anywhere, and some extend across several files.
func TestHolesHaveTheSameSums(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	passed := 0 // positive once a single lookup has found a hole of several chunks
	for round := range 8 {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = root.Close() })
		var entries []entry
		for i := range 1 + r.IntN(5) {
			e := entry{Path: fmt.Sprint("f", i), Mode: 0o600, Size: r.Int64N(5 * chunkBytes)}
			f, err := root.Create(e.Path)
			if err != nil {
				t.Fatal(err)
			}
			for range r.IntN(3) {
				if _, err := f.WriteAt([]byte{byte(1 + r.IntN(9))}, r.Int64N(e.Size+1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(f.Truncate(e.Size), f.Close()); err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		c := newContent(root, entries)
		for in, buf := c.reading(), make([]byte, chunkBytes); in.next < c.chunks(); {
			i := in.next
			got, err := in.sum()
			data, failed := c.read(i, buf)
			if err := errors.Join(err, failed); err != nil || got != sumOf(data) {
				t.Errorf("round %d: chunk %d has another sum (%v)", round, i, err)
			}
			passed += in.holes
		}
	}
	if passed < 20 {
		t.Errorf("%d chunks were passed with the one before them", passed)
	}
}

// A peer says how many chunks a hole has. The target refuses the hole unless it has at least one chunk and ends within
// the stream.
func TestHolesOfAPeerAreChecked(t *testing.T) {
	for _, holes := range []string{"0", "-1", "x", "4", "99999999999", "99999999999999999999"} {
		t.Run(holes, func(t *testing.T) {
			source, target, fetch := pair(t, 9<<20, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/chunk") {
						w.Header().Set(headerSum, zeroText())
						w.Header().Set(headerHole, holes)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			source.order(order(transport.TaskServe, "t1"))
			target.order(fetch)
			if r := target.failure("t1"); r.Code != model.CodeIntegrity || !strings.Contains(r.Message, "chunk 0") {
				t.Errorf("%s: %s", r.Code, r.Message)
			}
		})
	}
}

// The total size of a slot's files is limited, because even the chunks of a hole have sums. Backups have a lower limit.
func TestSizesOfVolumesAreBounded(t *testing.T) {
	n, slot := filled(t)
	grow := func(files int) error {
		for i := range files {
			f, err := os.Create(filepath.Join(slot, "data", fmt.Sprint("sparse", i)))
			if err := errors.Join(err, f.Truncate(7<<39), f.Close()); err != nil { // 3.5 TiB
				t.Fatal(err)
			}
		}
		root, err := os.OpenRoot(slot)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_, err = newManifest(root, []string{"data", "log"})
		return err
	}
	if err := grow(4); err != nil { // 14 TiB
		t.Errorf("a move of 14 TiB: %v", err)
	}
	n.order(order(transport.TaskBackup, "b1"))
	if r := n.failure("b1"); r.Code != model.CodeInvalid || !strings.Contains(r.Message, "at most 12288 GiB") {
		t.Errorf("a backup of 14 TiB: %s: %s", r.Code, r.Message)
	}
	var refusal *model.Error
	err := grow(5)
	if !errors.As(err, &refusal) || refusal.Code != model.CodeInvalid || !strings.Contains(refusal.Message, "16 TiB") {
		t.Errorf("a move of 17.5 TiB: %v", err)
	}
}
