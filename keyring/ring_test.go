package keyring_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
)

func create(t *testing.T, keys ...keyring.Key) (*keyring.Ring, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyring")
	r, err := keyring.Create(path, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r, path
}

// wantCode fails the test unless err has the code, a hint, and the words.
func wantCode(t *testing.T, err error, code model.Code, words ...string) {
	t.Helper()
	known, ok := errors.AsType[*model.Error](err)
	if !ok || known.Code != code || known.Hint == "" {
		t.Errorf("error %v, want the code %s and a hint", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not contain %q", err, w)
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantIDs checks the keys of a ring and of its file. The first one is active.
func wantIDs(t *testing.T, r *keyring.Ring, path string, ids ...keyring.ID) {
	t.Helper()
	again, err := keyring.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.IDs(), ids) || !slices.Equal(again.IDs(), ids) {
		t.Errorf("the ring has %v, its file %v; want %v", r.IDs(), again.IDs(), ids)
	}
	if r.Active() != ids[0] || again.Active() != ids[0] {
		t.Errorf("active are %s and %s, want %s", r.Active(), again.Active(), ids[0])
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}

func TestLifeOfKeys(t *testing.T) {
	r, path := create(t)
	a := r.Active()
	wantIDs(t, r, path, a)

	b := must[keyring.Key](t)(r.Generate())
	wantIDs(t, r, path, a, b.ID())
	ok(t, r.Activate(b.ID()))
	wantIDs(t, r, path, b.ID(), a)
	c := must[keyring.ID](t)(r.Rotate())
	wantIDs(t, r, path, c, b.ID(), a)

	wantCode(t, r.Remove(c), model.CodeInUse, string(c), path)
	wantCode(t, r.Remove("0000000000000000"), model.CodeNotFound, "0000000000000000", path)
	wantCode(t, r.Activate("x"), model.CodeNotFound, `"x"`)
	ok(t, r.Remove(b.ID()))
	wantIDs(t, r, path, c, a)

	other, otherPath := create(t)
	d := other.Active()
	ok(t, r.Add(other.Keys()...))
	wantIDs(t, r, path, c, a, d)
	ok(t, r.Add(other.Keys()...))
	wantIDs(t, r, path, c, a, d)
	wantCode(t, r.Add(keyring.Key{}), model.CodeInvalid)
	wantIDs(t, other, otherPath, d)

	third, thirdPath := create(t, append(r.Keys(), r.Keys()...)...)
	wantIDs(t, third, thirdPath, c, a, d)
	if got := r.Keys()[0].Created(); !got.Equal(third.Keys()[0].Created()) || got.Year() < 2020 {
		t.Errorf("a key was made at %v, and in a copy at %v", got, third.Keys()[0].Created())
	}
}

func TestKeysAreBounded(t *testing.T) {
	var keys []keyring.Key
	for i := range keyring.MaxKeys + 1 {
		b := make([]byte, 40)
		b[38], b[39] = byte(i>>8), 1+byte(i)
		if i&0xff == 0xff {
			b[37] = 1
		}
		keys = append(keys, must[keyring.Key](t)(keyring.ParseKey(b)))
	}
	_, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"), keys...)
	wantCode(t, err, model.CodeTooLarge, "257 keys, at most 256")
	r, path := create(t, keys[:keyring.MaxKeys]...)
	wantCode(t, r.Add(keys[keyring.MaxKeys]), model.CodeTooLarge)
	_, err = r.Rotate()
	wantCode(t, err, model.CodeTooLarge)
	if again := must[*keyring.Ring](t)(keyring.Open(path)); len(again.IDs()) != keyring.MaxKeys {
		t.Errorf("the file has %d keys", len(again.IDs()))
	}
}

func TestOpenRefuses(t *testing.T) {
	_, good := create(t)
	content := must[[]byte](t)(os.ReadFile(good))
	edited := func(edit func(b []byte) []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, edit(bytes.Clone(content)), 0o600) }
	}
	// summed gives the content a right checksum after the edit.
	summed := func(edit func(b []byte) []byte) func(string) error {
		return edited(func(b []byte) []byte {
			b = edit(b[:len(b)-sha256.Size])
			sum := sha256.Sum256(b)
			return append(b, sum[:]...)
		})
	}
	withMode := func(mode os.FileMode) func(string) error {
		return func(path string) error {
			return errors.Join(os.WriteFile(path, content, 0o600), os.Chmod(path, mode))
		}
	}
	tests := []struct {
		name  string
		make  func(path string) error
		code  model.Code
		words string
	}{
		{"missing", func(string) error { return nil }, model.CodeNotFound, "does not exist"},
		{"readable by the group", withMode(0o640), model.CodeKeyringInvalid, "mode 0640"},
		{"readable by all", withMode(0o604), model.CodeKeyringInvalid, "run: chmod 600 "},
		{"writable by the group", withMode(0o620), model.CodeKeyringInvalid, "mode 0620"},
		{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }, model.CodeKeyringInvalid, "not a regular file"},
		{"a FIFO", func(p string) error { return syscall.Mkfifo(p, 0o600) }, model.CodeKeyringInvalid, "not a regular file"},
		{"a link", func(p string) error { return os.Symlink(good, p) }, model.CodeKeyringInvalid, "symbolic link"},
		{"empty", edited(func([]byte) []byte { return nil }), model.CodeKeyringInvalid, "cut off"},
		{"another file", edited(func(b []byte) []byte { b[0] = 'x'; return b }), model.CodeKeyringInvalid, "not a keyring"},
		{"a newer format", edited(func(b []byte) []byte { b[15] = 2; return b }), model.CodeKeyringInvalid, "format 2"},
		{"cut off", edited(func(b []byte) []byte { return b[:len(b)-1] }), model.CodeKeyringInvalid, "checksum"},
		{"longer", edited(func(b []byte) []byte { return append(b, 0) }), model.CodeKeyringInvalid, "checksum"},
		{"a changed key", edited(func(b []byte) []byte { b[40] ^= 1; return b }), model.CodeKeyringInvalid, "checksum"},
		{"no keys", summed(func(b []byte) []byte { b[17] = 0; return b[:18] }), model.CodeKeyringInvalid, "their number"},
		{"a key more", summed(func(b []byte) []byte { b[17] = 2; return b }), model.CodeKeyringInvalid, "their number"},
		{"a key twice", summed(func(b []byte) []byte { b[17] = 2; return append(b, b[18:]...) }), model.CodeKeyringInvalid,
			"one key twice"},
		{"a key of zeros", summed(func(b []byte) []byte { clear(b[26:]); return b }), model.CodeKeyringInvalid, "zeros"},
		{"huge", func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o600), os.Truncate(p, 1<<40)) },
			model.CodeKeyringInvalid, "longer than any keyring"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keyring")
			ok(t, tt.make(path))
			_, err := keyring.Open(path)
			wantCode(t, err, tt.code, path, tt.words)
		})
	}
}

// Every byte of a file is protected by its checksum, its magic or its format.
func TestEveryDamagedByteIsSeen(t *testing.T) {
	_, path := create(t)
	content := must[[]byte](t)(os.ReadFile(path))
	for i := range content {
		b := bytes.Clone(content)
		b[i] ^= 0x10
		ok(t, os.WriteFile(path, b, 0o600))
		if _, err := keyring.Open(path); err == nil {
			t.Errorf("byte %d was changed, and the file was opened", i)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	_, path := create(t)
	before := must[[]byte](t)(os.ReadFile(path))
	_, err := keyring.Create(path)
	wantCode(t, err, model.CodeFileExists, path)
	if after := must[[]byte](t)(os.ReadFile(path)); !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	link := path + "-link"
	ok(t, os.Symlink("nowhere", link))
	_, err = keyring.Create(link)
	wantCode(t, err, model.CodeFileExists, link)
	_, err = keyring.Create(filepath.Join(path, "below"))
	wantCode(t, err, model.CodeFile, path)
	_, err = keyring.Create(path+"-2", keyring.Key{})
	wantCode(t, err, model.CodeInvalid)
}

// A temporary file that a crash left gives neither its mode nor its content to the keyring.
func TestTemporaryFileOfACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyring")
	ok(t, errors.Join(os.WriteFile(path+".new", []byte("half"), 0o600), os.Chmod(path+".new", 0o666)))
	r := must[*keyring.Ring](t)(keyring.Create(path))
	wantIDs(t, r, path, r.Active())
}

// A change that can't be written changes nothing. A file that another process changed is not replaced.
func TestChangesThatFail(t *testing.T) {
	r, path := create(t)
	a := r.Active()
	ok(t, errors.Join(os.Mkdir(path+".new", 0o700), os.WriteFile(path+".new/x", nil, 0o600)))
	_, err := r.Rotate()
	wantCode(t, err, model.CodeFile, path)
	wantIDs(t, r, path, a)
	ok(t, os.RemoveAll(path+".new"))

	second := must[*keyring.Ring](t)(keyring.Open(path))
	b := must[keyring.ID](t)(second.Rotate())
	_, err = r.Rotate()
	wantCode(t, err, model.CodeConflict, path)
	wantIDs(t, second, path, b, a)
	if r.Active() != a {
		t.Errorf("active is %s after a refused change", r.Active())
	}
	ok(t, os.Remove(path))
	_, err = second.Rotate()
	wantCode(t, err, model.CodeNotFound, path)
}

func TestConcurrentUse(t *testing.T) {
	r, path := create(t)
	_, wrapped := r.WrapNew()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				if _, err := r.Generate(); err != nil {
					t.Error(err)
				}
				if _, err := r.Unwrap(wrapped); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(must[*keyring.Ring](t)(keyring.Open(path)).IDs()); got != 21 {
		t.Errorf("the file has %d keys, want 21", got)
	}
}
