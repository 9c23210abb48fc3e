package transfer

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// What a program puts in the place of a file that is read does not block the agent.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, want := range map[string]bool{"file": true, "pipe": false, "link": true, ".": false} {
		done := make(chan error, 1)
		go func() {
			f, err := openRegular(root, name)
			if err == nil {
				err = f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if (err == nil) != want {
				t.Errorf("%s: %v, want it opened: %v", name, err, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: opening it blocks", name)
		}
	}
}

// A node whose list of files has setuid and setgid bits plants no such files on another one.
func TestNoSetuidFilesArrive(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	special := uint32(fs.ModeSetuid | fs.ModeSetgid)
	entries := []entry{
		{Path: "data", Mode: uint32(fs.ModeDir) | special | 0o755, UID: os.Getuid(), GID: os.Getgid()},
		{Path: "data/sh", Mode: special | 0o755, UID: os.Getuid(), GID: os.Getgid()},
	}
	if err := layOut(root, entries); err != nil {
		t.Fatal(err)
	}
	if err := dress(root, entries); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := root.Lstat(e.Path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 || info.Mode().Perm() != 0o755 {
			t.Errorf("%s has mode %s", e.Path, info.Mode())
		}
	}
}
