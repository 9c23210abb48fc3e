package transfer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// FuzzManifest checks that a list of files from another agent is either refused with a code or safe to use. In a safe
// list, each path appears once, is below the requested volumes, and comes after its directory.
func FuzzManifest(f *testing.F) {
	add := func(entries ...entry) {
		var data bytes.Buffer
		list := manifest{Names: []string{"data", "wal"}, Chunk: chunkBytes, Entries: entries}
		if err := list.write(&data); err != nil {
			f.Fatal(err)
		}
		f.Add(data.Bytes())
	}
	dir, file := uint32(os.ModeDir|0o755), uint32(0o644)
	data, wal := entry{Path: "data", Mode: dir}, entry{Path: "wal", Mode: dir}
	add(data, wal)
	add(data, entry{Path: "data/x", Mode: file, Size: 9 << 20}, entry{Path: "data/y", Mode: file, Size: 3}, wal)
	add(data, entry{Path: "data/l", Mode: uint32(os.ModeSymlink | 0o777), Link: "../../etc"}, wal)
	add(data, entry{Path: "data/../../x", Mode: file}, wal)
	add(data, entry{Path: "data/a\x00b", Mode: file, Size: 1}, wal)
	add(data, entry{Path: "data/big", Mode: file, Size: 1<<63 - 1},
		entry{Path: "data/more", Mode: file, Size: 1<<63 - 1}, wal)
	names := []string{"data", "wal"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := readManifest(bytes.NewReader(raw), names, maxList)
		if err != nil {
			if known, ok := errors.AsType[*model.Error](err); !ok || known.Code == "" {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, e := range m.Entries {
			below := e.Path == "data" || e.Path == "wal" || strings.HasPrefix(e.Path, "data/") ||
				strings.HasPrefix(e.Path, "wal/")
			if !below || !filepath.IsLocal(e.Path) || filepath.Clean(e.Path) != e.Path ||
				strings.Contains(e.Path, "\x00") || seen[e.Path] {
				t.Fatalf("the entry %q was taken", e.Path)
			}
			if parent := filepath.Dir(e.Path); parent != "." && !seen[parent] {
				t.Fatalf("%q stands before its directory", e.Path)
			}
			seen[e.Path] = true
		}
		coversAll(t, m)
	})
}

// coversAll checks the first two and the last two chunks. The pieces of a chunk must lie within their files, and their
// lengths must add up to the chunk's length.
func coversAll(t *testing.T, m manifest) {
	t.Helper()
	c := newContent(nil, m.Entries)
	if c.total() < 0 || c.chunks() < 0 {
		t.Fatalf("%d bytes in %d chunks", c.total(), c.chunks())
	}
	for _, i := range []int{0, 1, c.chunks() - 2, c.chunks() - 1} {
		if i < 0 || i >= c.chunks() {
			continue
		}
		left := c.length(i)
		err := c.each(i, func(e *entry, at, n int64) error {
			if at < 0 || n < 1 || at+n > e.Size {
				t.Fatalf("chunk %d has bytes %d to %d of %s, which has %d", i, at, at+n, e.Path, e.Size)
			}
			left -= n
			return nil
		})
		if err != nil || left != 0 {
			t.Fatalf("chunk %d lacks %d bytes: %v", i, left, err)
		}
	}
}
