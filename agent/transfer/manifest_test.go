package transfer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// sendList writes a list of n entries and closes the pipe. It stops early if the reader closes the pipe.
func sendList(to *io.PipeWriter, n int, item func(i int) entry) {
	w := bufio.NewWriter(to)
	err := writeFrame(w, manifestHead{Names: []string{"data"}, Chunk: chunkBytes, Count: n})
	for i := 0; i < n && err == nil; i++ {
		e := item(i)
		err = writeFrame(w, &e)
	}
	_ = to.CloseWithError(errors.Join(err, w.Flush()))
}

func heapInUse() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A peer's list of files takes bounded memory, however many entries it has and whatever they contain.
func TestLargeManifestIsBounded(t *testing.T) {
	const most = maxList / entryCost
	name := strings.Repeat("n", 60)
	for what, tt := range map[string]struct {
		item func(i int) entry
		code model.Code
		kept int64 // most bytes of heap that the result may keep
	}{
		"files": {func(i int) entry {
			if i == 0 {
				return entry{Path: "data", Mode: uint32(os.ModeDir | 0o700)}
			}
			return entry{Path: fmt.Sprintf("data/%s%08d", name, i), Mode: 0o600, Size: 1}
		}, model.CodeInvalid, maxList},
		"directories": {func(i int) entry {
			return entry{Path: "data" + strings.Repeat("/d", i%1000) + fmt.Sprintf("%08d", i), Mode: uint32(os.ModeDir | 0o700)}
		}, model.CodeIntegrity, 1 << 20},
		"nothing": {func(int) entry { return entry{} }, model.CodeIntegrity, 1 << 20},
		"one path": {func(i int) entry {
			return entry{Path: strings.Repeat("x", min(i, 1)*maxFrame/2), Mode: 0o600}
		}, model.CodeIntegrity, 1 << 20},
	} {
		before := heapInUse()
		from, to := io.Pipe()
		go sendList(to, most, tt.item)
		m, err := readManifest(from, []string{"data"}, maxList)
		_ = from.Close()
		kept := heapInUse() - before
		if !errors.Is(err, &model.Error{Code: tt.code}) {
			t.Errorf("%s: %v, want code %s", what, err, tt.code)
		}
		if kept > tt.kept {
			t.Errorf("%s: %d entries take %d MiB, want at most %d", what, len(m.Entries), kept>>20, tt.kept>>20)
		}
		t.Logf("%s: %d entries, %d MiB: %v", what, len(m.Entries), kept>>20, err)
		runtime.KeepAlive(m)
	}
}

// A list that claims a huge entry, or a huge number of entries, is refused before memory is allocated for it.
func TestManifestFramesAreBounded(t *testing.T) {
	var raw bytes.Buffer
	if err := writeFrame(&raw, manifestHead{Names: []string{"data"}, Chunk: chunkBytes, Count: 1}); err != nil {
		t.Fatal(err)
	}
	raw.Write(binary.BigEndian.AppendUint32(nil, 1<<30))
	if _, err := readManifest(&raw, []string{"data"}, maxList); !errors.Is(err, &model.Error{Code: model.CodeIntegrity}) ||
		!strings.Contains(err.Error(), "1073741824") {
		t.Errorf("an entry of 1 GiB: %v", err)
	}
	raw.Reset()
	if err := writeFrame(&raw, manifestHead{Names: []string{"data"}, Chunk: chunkBytes, Count: 1 << 62}); err != nil {
		t.Fatal(err)
	}
	if _, err := readManifest(&raw, []string{"data"}, maxList); !errors.Is(err, &model.Error{Code: model.CodeIntegrity}) {
		t.Errorf("2^62 entries: %v", err)
	}
}

// A list is read back as it was written. A list that is cut short or continues after its end is refused.
func TestManifestThereAndBack(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "data", "a-b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"data/a", "data/a-b/x", "data/a.c", "data/z"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	m, err := newManifest(root, []string{"data"})
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	if err := m.write(&raw); err != nil {
		t.Fatal(err)
	}
	back, err := readManifest(bytes.NewReader(raw.Bytes()), []string{"data"}, maxList)
	if err != nil || fmt.Sprint(back) != fmt.Sprint(m) || len(back.Entries) != 6 {
		t.Errorf("read back %v, %v, want %v", back, err, m)
	}
	for _, wrong := range [][]byte{raw.Bytes()[:raw.Len()-1], append(bytes.Clone(raw.Bytes()), 0), nil} {
		if _, err := readManifest(bytes.NewReader(wrong), []string{"data"}, maxList); !errors.Is(err,
			&model.Error{Code: model.CodeIntegrity}) {
			t.Errorf("%d bytes of %d: %v", len(wrong), raw.Len(), err)
		}
	}
}

// A restored copy whose list of files is longer than a peer's may be is reported with its size after a restart.
func TestStagedBytesOfALongList(t *testing.T) {
	n := newNode(t, nil)
	if err := os.MkdirAll(n.path(stagingDir, "r1"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(n.path(stagingDir, "r1", "manifest"))
	if err != nil {
		t.Fatal(err)
	}
	m := manifest{Names: []string{"data"}, Chunk: chunkBytes,
		Entries: []entry{{Path: "data", Mode: uint32(os.ModeDir | 0o700)}}}
	for i, link := 0, strings.Repeat("l", maxFrame/2); i*len(link) <= maxList; i++ {
		m.Entries = append(m.Entries, entry{Path: fmt.Sprintf("data/%08d", i), Mode: uint32(os.ModeSymlink), Link: link})
	}
	m.Entries = append(m.Entries, entry{Path: "data/z", Mode: 0o600, Size: 5})
	if err := errors.Join(m.write(f), f.Close(),
		os.WriteFile(n.path(stagingDir, "r1", "verified"), []byte("sum"), 0o600)); err != nil {
		t.Fatal(err)
	}
	o := order(transport.TaskRestore, "r1")
	o.Names = m.Names
	n.order(o)
	if r := n.await("r1", model.SideVerified); r.Total != 5 || r.Bytes != 5 {
		t.Errorf("reported are %d of %d bytes, want 5 of 5", r.Bytes, r.Total)
	}
}

// The manifest of a backup is bounded when it is read, since others may write to its directory.
func TestArchiveManifestIsBounded(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, archiveManifest))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(maxArchiveManifest + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := readArchive(dir, "b1", ""); !errors.Is(err, &model.Error{Code: model.CodeIntegrity}) ||
		!strings.Contains(err.Error(), "256 MiB") {
		t.Errorf("a manifest of 256 MiB and a byte: %v", err)
	}
}
