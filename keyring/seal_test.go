package keyring_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
)

func TestSealedRows(t *testing.T) {
	r, _ := create(t)
	d, wrapped := r.WrapNew()
	same := must[keyring.DEK](t)(r.Unwrap(wrapped))
	other, _ := r.WrapNew()
	plain := []byte("swordfish")
	sealed := must[[]byte](t)(d.Seal("ca/key", 7, plain))
	if bytes.Contains(sealed, plain) || len(sealed) != len(plain)+keyring.Overhead {
		t.Errorf("sealed as %q", sealed)
	}
	if twice := must[[]byte](t)(d.Seal("ca/key", 7, plain)); bytes.Equal(sealed[:13], twice[:13]) {
		t.Error("two rows have the same nonce")
	}
	if got, err := same.Open("ca/key", 7, sealed); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("opened as %q, %v", got, err)
	}
	empty := must[[]byte](t)(d.Seal("e", 0, nil))
	if got, err := d.Open("e", 0, empty); err != nil || len(got) != 0 {
		t.Errorf("an empty row opened as %q, %v", got, err)
	}
	format := slices.Clone(sealed)
	format[0] = 2
	tests := []struct {
		what    string
		dek     keyring.DEK
		name    string
		version uint64
		sealed  []byte
		words   string
	}{
		{"another name", d, "ca/kez", 7, sealed, `sealed row "ca/kez", version 7,`},
		{"another version", d, "ca/key", 8, sealed, "sealed as another row"},
		{"another data key", other, "ca/key", 7, sealed, "by another data key"},
		{"cut off", d, "ca/key", 7, sealed[:28], "cut off"},
		{"one byte less", d, "ca/key", 7, sealed[:len(sealed)-1], "damaged"},
		{"nothing", d, "ca/key", 7, nil, "cut off"},
		{"another format", d, "ca/key", 7, format, "does not know"},
	}
	for _, tt := range tests {
		got, err := tt.dek.Open(tt.name, tt.version, tt.sealed)
		wantCode(t, err, model.CodeIntegrity, tt.words)
		if got != nil {
			t.Errorf("%s: returned %q", tt.what, got)
		}
	}
	for i := range sealed {
		b := slices.Clone(sealed)
		b[i] ^= 1
		if _, err := d.Open("ca/key", 7, b); err == nil {
			t.Errorf("byte %d was changed, and the row was opened", i)
		}
	}
}

// The first bytes of a name can't be taken for a part of the version.
func TestNameAndVersionAreApart(t *testing.T) {
	r, _ := create(t)
	d, _ := r.WrapNew()
	sealed := must[[]byte](t)(d.Seal("1x", 1, []byte("a")))
	for _, version := range []uint64{0, 11, 1 << 8, 1<<56 | 1} {
		for _, name := range []string{"x", "1x", "\x001x", "\x011x"} {
			if _, err := d.Open(name, version, sealed); err == nil {
				t.Errorf("opened as %q, version %d", name, version)
			}
		}
	}
}

func TestBoundsOfRows(t *testing.T) {
	r, _ := create(t)
	d, _ := r.WrapNew()
	longest := strings.Repeat("n", keyring.MaxName)
	most := make([]byte, keyring.MaxPlain)
	sealed := must[[]byte](t)(d.Seal(longest, 1, most))
	if got, err := d.Open(longest, 1, sealed); err != nil || !bytes.Equal(got, most) {
		t.Errorf("the largest row: %d bytes, %v", len(got), err)
	}
	_, err := d.Seal(longest+"n", 1, nil)
	wantCode(t, err, model.CodeInvalid, "1025 bytes")
	_, err = d.Seal("", 1, nil)
	wantCode(t, err, model.CodeInvalid)
	_, err = d.Seal("a", 1, append(most, 0))
	wantCode(t, err, model.CodeTooLarge, `"a"`, "1MiB")
	_, err = d.Open("a", 1, append(sealed, 0))
	wantCode(t, err, model.CodeTooLarge)
	_, err = d.Open("", 1, sealed)
	wantCode(t, err, model.CodeInvalid)
}

// A wrapped data key opens only under its own KEK, and after a change of the active KEK also wrapped again.
func TestWrappedDataKeys(t *testing.T) {
	r, path := create(t)
	a := r.Active()
	d, wrapped := r.WrapNew()
	if wrapped.KEK != a {
		t.Errorf("wrapped by %s, active is %s", wrapped.KEK, a)
	}
	sealed := must[[]byte](t)(d.Seal("row", 1, []byte("plain")))
	b := must[keyring.ID](t)(r.Rotate())
	again := must[keyring.Wrapped](t)(r.Rewrap(wrapped, b))
	if again.KEK != b {
		t.Errorf("wrapped again by %s, want %s", again.KEK, b)
	}
	for _, w := range []keyring.Wrapped{wrapped, again} {
		got, err := must[keyring.DEK](t)(r.Unwrap(w)).Open("row", 1, sealed)
		if err != nil || string(got) != "plain" {
			t.Errorf("under %s: %q, %v", w.KEK, got, err)
		}
	}
	_, err := r.Unwrap(keyring.Wrapped{KEK: b, Bytes: wrapped.Bytes})
	wantCode(t, err, model.CodeIntegrity, string(b))
	for i := range wrapped.Bytes {
		bad := slices.Clone(wrapped.Bytes)
		bad[i] ^= 1
		if _, err := r.Unwrap(keyring.Wrapped{KEK: a, Bytes: bad}); err == nil {
			t.Errorf("byte %d was changed, and the data key was unwrapped", i)
		}
	}
	for _, bad := range [][]byte{nil, wrapped.Bytes[:60], append(slices.Clone(wrapped.Bytes), 0)} {
		_, err := r.Unwrap(keyring.Wrapped{KEK: a, Bytes: bad})
		wantCode(t, err, model.CodeIntegrity)
	}
	_, err = r.Rewrap(wrapped, "0000000000000000")
	wantCode(t, err, model.CodeNotFound, "0000000000000000")
	ok(t, r.Remove(a))
	_, err = r.Unwrap(wrapped)
	wantCode(t, err, model.CodeNotFound, string(a), path)
	_, err = r.Rewrap(wrapped, b)
	wantCode(t, err, model.CodeNotFound)
}

func TestProofs(t *testing.T) {
	one, _ := create(t)
	id := one.Active()
	two, _ := create(t, one.Keys()...)
	c := keyring.NewChallenge()
	p := must[keyring.Proof](t)(two.Prove(id, "s2", c))
	ok(t, one.Check(id, "s2", c, p))

	wantCode(t, one.Check(id, "s3", c, p), model.CodeForbidden, "server s3", string(id)) // s3 passed on the proof of s2
	wantCode(t, one.Check(id, "s2", keyring.NewChallenge(), p), model.CodeForbidden)     // an old proof
	wantCode(t, one.Check(id, "s2", c, keyring.Proof{}), model.CodeForbidden)
	rotated := must[keyring.ID](t)(one.Rotate())
	wantCode(t, one.Check(rotated, "s2", c, p), model.CodeForbidden, string(rotated)) // the proof of another key
	_, err := two.Prove(rotated, "s2", c)
	wantCode(t, err, model.CodeNotFound, string(rotated))
	wantCode(t, two.Check(rotated, "s1", c, p), model.CodeNotFound)
}

func TestMACKeys(t *testing.T) {
	one, _ := create(t)
	two, _ := create(t, one.Keys()...)
	first := one.Active()
	second := must[keyring.ID](t)(one.Rotate())
	sum := func(r *keyring.Ring, id keyring.ID, label string, parts ...string) string {
		t.Helper()
		var b [][]byte
		for _, p := range parts {
			b = append(b, []byte(p))
		}
		return string(must[keyring.MACKey](t)(r.MACKey(id, label)).Sum(b...))
	}
	want := sum(one, first, "bodies", "ab", "c")
	if got := sum(two, first, "bodies", "ab", "c"); got != want || len(got) != 32 {
		t.Error("two servers have different sums")
	}
	for what, other := range map[string]string{
		"another key":    sum(one, second, "bodies", "ab", "c"),
		"another label":  sum(one, first, "bodie", "ab", "c"),
		"parts cut anew": sum(one, first, "bodies", "a", "bc"),
		"one part":       sum(one, first, "bodies", "abc"),
		"one more part":  sum(one, first, "bodies", "ab", "c", ""),
	} {
		if other == want {
			t.Errorf("%s: the same sum", what)
		}
	}
	// A MAC key of a label that is the name of a purpose inside the package is still another key.
	c := keyring.NewChallenge()
	p := must[keyring.Proof](t)(one.Prove(first, "s1", c))
	for _, label := range []string{"prove", "", "../prove"} {
		if sum(one, first, label, string(c[:]), "s1") == string(p[:]) {
			t.Errorf("the label %q gives proofs", label)
		}
	}
	_, err := one.MACKey("x", "bodies")
	wantCode(t, err, model.CodeNotFound)
}
