package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

// FuzzOpen opens files with any content. Open either refuses the file with a code and leaves it as it is, or returns a
// journal that accepts writes and has the same data after it is opened again.
func FuzzOpen(f *testing.F) {
	file := []byte(header)
	for seq, ops := range [][]Op{{{Key: "a", Value: []byte("1")}},
		{{Key: "b", Value: []byte("2")}, {Key: "a", Delete: true}}, {}} {
		record, err := encodeRecord(uint64(seq+1), ops)
		if err != nil {
			f.Fatal(err)
		}
		file = append(file, record...)
		f.Add(bytes.Clone(file))
		f.Add(file[:len(file)-3])
	}
	f.Add([]byte(header))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(path, SyncNever)
		if err != nil {
			known, ok := errors.AsType[*model.Error](err)
			if !ok || known.Code != CodeDamaged || known.Hint == "" {
				t.Fatalf("refused with %v", err)
			}
			if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, data) {
				t.Fatalf("a damaged journal was not left as it is: %v", err)
			}
			return
		}
		if err := j.Put("new", []byte("value")); err != nil {
			t.Fatal(err)
		}
		want := j.values
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j, err = Open(path, SyncNever)
		if err != nil {
			t.Fatalf("what was opened and written can't be opened: %v", err)
		}
		defer func() { _ = j.Close() }()
		if diff := cmp.Diff(want, j.values); diff != "" {
			t.Fatalf("it came back different:\n%s", diff)
		}
	})
}

// FuzzRecords parses records with any content and a right checksum.
func FuzzRecords(f *testing.F) {
	for _, body := range [][]byte{{0x80}, {0x81, 0xa2, 1, 0x61, 'a', 2, 0x41, 1}, {0x81, 0xa2, 1, 0x61, 'a', 3, 0xf5},
		{0x9f, 0xff}, {0xf6}} {
		f.Add(body, uint64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, seq uint64) {
		got, ops, size, err := parseRecord(frameRecord(seq, body))
		if err != nil {
			return
		}
		if got != seq || size != recordHead+len(body) {
			t.Fatalf("sequence %d, %d bytes; want %d, %d", got, size, seq, recordHead+len(body))
		}
		again, err := encodeRecord(seq, ops)
		if err != nil {
			t.Fatal(err)
		}
		if _, ops2, _, err := parseRecord(again); err != nil || len(ops2) != len(ops) {
			t.Fatalf("%d changes became %d (%v)", len(ops), len(ops2), err)
		}
	})
}
