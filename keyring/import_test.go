package keyring_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
)

const passphrase = "correct horse battery"

func TestExportAndImport(t *testing.T) {
	r, _ := create(t)
	_, err := r.Rotate()
	ok(t, err)
	_, wrapped := r.WrapNew()
	var b bytes.Buffer
	ok(t, r.Export(&b, passphrase))
	if !strings.HasPrefix(b.String(), "-----BEGIN OUTSPAN KEYRING EXPORT-----\n") {
		t.Errorf("exported as %s", b.String())
	}
	for _, k := range r.Keys() {
		if bytes.Contains(decoded(t, b.Bytes()), k.Encode()[8:]) {
			t.Error("the export contains a key in plain")
		}
	}
	keys := must[[]keyring.Key](t)(keyring.Import(&b, passphrase))
	restored, path := create(t, keys...)
	wantIDs(t, restored, path, r.IDs()...)
	if _, err := restored.Unwrap(wrapped); err != nil {
		t.Error(err)
	}
}

func decoded(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("no PEM block in %q", text)
	}
	return block.Bytes
}

func TestImportRefuses(t *testing.T) {
	r, _ := create(t)
	var b bytes.Buffer
	ok(t, r.Export(&b, passphrase))
	text := b.String()
	body := decoded(t, b.Bytes())
	const blockType = "OUTSPAN KEYRING EXPORT"
	encoded := func(kind string, headers map[string]string, edit func([]byte) []byte) string {
		block := &pem.Block{Type: kind, Headers: headers, Bytes: edit(slices.Clone(body))}
		return string(pem.EncodeToMemory(block))
	}
	plain := func(edit func([]byte) []byte) string { return encoded(blockType, nil, edit) }
	same := func(b []byte) []byte { return b }
	// summed is an export with a right checksum after the edit, as someone who wants to do harm would write it.
	summed := func(edit func(b []byte)) string {
		return plain(func(b []byte) []byte {
			content := b[:len(b)-sha256.Size]
			edit(content)
			sum := sha256.Sum256(content)
			return append(content, sum[:]...)
		})
	}
	iterations := func(n uint32) string {
		return summed(func(b []byte) { binary.BigEndian.PutUint32(b[1:], n) })
	}
	tests := []struct {
		name, text, passphrase string
		code                   model.Code
		words                  string
	}{
		{"a wrong passphrase", text, "incorrect horse battery", model.CodeInvalid, "the passphrase"},
		{"no passphrase", text, "", model.CodeInvalid, "the passphrase"},
		{"a passphrase without end", text, strings.Repeat("x", 1025), model.CodeInvalid, "the passphrase"},
		{"nothing", "", passphrase, model.CodeIntegrity, "not one export"},
		{"another text", "hello", passphrase, model.CodeIntegrity, "not one export"},
		{"another block", encoded("PRIVATE KEY", nil, same), passphrase, model.CodeIntegrity, "not one export"},
		{"headers", encoded(blockType, map[string]string{"A": "b"}, same), passphrase,
			model.CodeIntegrity, "not one export"},
		{"two exports", text + text, passphrase, model.CodeIntegrity, "not one export"},
		{"too long", text + strings.Repeat("\n", 64<<10), passphrase, model.CodeIntegrity, "not one export"},
		{"an empty block", plain(func([]byte) []byte { return nil }), passphrase, model.CodeIntegrity, "not one export"},
		{"a newer format", plain(func(b []byte) []byte { b[0] = 2; return b }), passphrase,
			model.CodeNotSupported, "format 2"},
		{"cut off", plain(func(b []byte) []byte { return b[:52] }), passphrase, model.CodeIntegrity, "cut off"},
		{"one byte less", plain(func(b []byte) []byte { return b[:len(b)-1] }), passphrase, model.CodeIntegrity, "checksum"},
		{"a changed byte", plain(func(b []byte) []byte { b[30] ^= 1; return b }), passphrase,
			model.CodeIntegrity, "checksum"},
		{"few iterations", iterations(599_999), passphrase, model.CodeNotSupported, "599999 iterations"},
		{"many iterations", iterations(5_000_001), passphrase, model.CodeNotSupported, "5000001 iterations"},
		{"as many as fit", iterations(1<<32 - 1), passphrase, model.CodeNotSupported, "4294967295 iterations"},
		{"another number", iterations(600_001), passphrase, model.CodeInvalid, "the passphrase"},
		{"another salt", summed(func(b []byte) { b[5] ^= 1 }), passphrase, model.CodeInvalid, "the passphrase"},
		{"other keys", summed(func(b []byte) { b[len(b)-20] ^= 1 }), passphrase, model.CodeInvalid, "the passphrase"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			keys, err := keyring.Import(strings.NewReader(tt.text), tt.passphrase)
			wantCode(t, err, tt.code, tt.words)
			if keys != nil {
				t.Errorf("imported %v", keys)
			}
			if tt.passphrase != "" && strings.Contains(err.Error(), tt.passphrase) {
				t.Error("the error repeats the passphrase")
			}
		})
	}
	_, err := keyring.Import(iotest.ErrReader(errors.New("torn")), passphrase)
	wantCode(t, err, model.CodeFile, "torn")
}

func TestExportRefuses(t *testing.T) {
	r, path := create(t)
	for _, bad := range []string{"", "elevenbytes", strings.Repeat("x", 1025)} {
		var b bytes.Buffer
		err := r.Export(&b, bad)
		wantCode(t, err, model.CodeInvalid, "12 to 1024 bytes")
		if b.Len() > 0 || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("wrote %d bytes, %v", b.Len(), err)
		}
	}
	wantCode(t, r.Export(full{}, passphrase), model.CodeFile, path, "full")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestParseKey(t *testing.T) {
	r, _ := create(t)
	k := r.Keys()[0]
	b := k.Encode()
	same := must[keyring.Key](t)(keyring.ParseKey(b))
	if same.ID() != k.ID() || !bytes.Equal(same.Encode(), b) {
		t.Errorf("read again as %s, not %s", same.ID(), k.ID())
	}
	b[39] ^= 1
	if other := must[keyring.Key](t)(keyring.ParseKey(b)); other.ID() == k.ID() {
		t.Error("two keys have one id")
	}
	clear(b[8:])
	before := append([]byte{0x80}, k.Encode()[1:]...)
	for _, bad := range [][]byte{nil, b, b[:39], append(k.Encode(), 0), before} {
		_, err := keyring.ParseKey(bad)
		wantCode(t, err, model.CodeInvalid)
	}
}
