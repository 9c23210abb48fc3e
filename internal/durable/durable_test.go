package durable_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/outspan/outspan/internal/durable"
)

// Replace writes the whole content of a file. If writing fails, the file keeps its old content. In both cases, no
// temporary file is left.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	want := func(content string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != content {
			t.Errorf("the file has %q, %v; want %q", got, err, content)
		}
		names, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(names) != 1 {
			t.Errorf("the directory has %v, %v; want the file alone", names, err)
		}
	}
	if err := durable.ReplaceBytes(path, []byte("old and long"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("old and long")
	torn := errors.New("torn")
	err := durable.Replace(path, func(w io.Writer) error {
		_, err := w.Write([]byte("half"))
		return errors.Join(err, torn)
	}, 0o600)
	if !errors.Is(err, torn) {
		t.Errorf("a write that fails: %v", err)
	}
	want("old and long")
	if err := os.WriteFile(path+".new", []byte("left by a crash, and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := durable.ReplaceBytes(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("new")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := durable.ReplaceBytes(filepath.Join(path, "below a file"), nil, 0o600); err == nil {
		t.Error("a file below a file was written")
	}
}
