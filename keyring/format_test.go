package keyring_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outspan/outspan/keyring"
)

// What the first version of every format wrote is read as it was meant. A change of a format must add a new version, so
// these values are never replaced. They were checked with another implementation of HKDF, PBKDF2 and AES-GCM.
func TestFormatsStayReadable(t *testing.T) {
	bytesOf := func(text string) []byte {
		t.Helper()
		return must[[]byte](t)(hex.DecodeString(text))
	}
	ids := []keyring.ID{"2984b296168860a0", "b60869badca800ff"}
	content := must[[]byte](t)(os.ReadFile("testdata/format1.keyring"))
	path := filepath.Join(t.TempDir(), "keyring")
	ok(t, os.WriteFile(path, content, 0o600))
	r := must[*keyring.Ring](t)(keyring.Open(path))
	if got := r.IDs(); !slices.Equal(got, ids) {
		t.Errorf("the file has the keys %v, want %v", got, ids)
	}
	if got := r.Keys()[0].Created().Format("2006-01-02 15:04:05"); got != "2023-09-12 06:06:56" {
		t.Errorf("the first key was made at %s", got)
	}

	f := must[*os.File](t)(os.Open("testdata/format1.pem"))
	defer f.Close()
	keys := must[[]keyring.Key](t)(keyring.Import(f, passphrase))
	copied, copiedPath := create(t, keys...)
	wantIDs(t, copied, copiedPath, ids...)
	if got := must[[]byte](t)(os.ReadFile(copiedPath)); !slices.Equal(got, content) {
		t.Error("the export makes another file than the one that was exported")
	}

	d := must[keyring.DEK](t)(r.Unwrap(keyring.Wrapped{KEK: ids[0], Bytes: bytesOf("01d682c719a6f7b01f0a1478595c0c45d889" +
		"21debb9df2b7c407fbd45769f7f101581f5c5b36ca8cba963ba7d93c256713235208fb31b319f417f87f74")}))
	plain, err := d.Open("ca/key", 7,
		bytesOf("0124bf92b47a02465fcd66baa597a32eea8cf3bb1dc075f7313bfc07b40be12d6b5506cfd987"))
	if err != nil || string(plain) != "swordfish" {
		t.Errorf("the row is %q, %v", plain, err)
	}
	sum := must[keyring.MACKey](t)(r.MACKey(ids[0], "bodies")).Sum([]byte("a"), []byte("bc"))
	if got := hex.EncodeToString(sum); got != "4336df6a20fd3fce7bd7be589dde1d13792cc34d7bb1d2c034eac5c0c328ad6e" {
		t.Errorf("the sum is %s", got)
	}
	p := bytesOf("ad98f160536985aabe015708e4d80130b9edf7a420705e1ce8641aafc600a354")
	ok(t, r.Check(ids[0], "s1", keyring.Challenge{1}, keyring.Proof(p)))
}
