package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"slices"
	"testing"

	"github.com/outspan/outspan/model"
)

func refusedWith(t *testing.T, err error, codes ...model.Code) {
	t.Helper()
	known, ok := errors.AsType[*model.Error](err)
	if !ok || !slices.Contains(codes, known.Code) || known.Hint == "" {
		t.Fatalf("refused with %v, want one of %v and a hint", err, codes)
	}
}

func summed(b []byte) []byte {
	sum := sha256.Sum256(b)
	return append(slices.Clip(b), sum[:]...)
}

// FuzzFile: the content of a file is refused with a code, or its keys are written again as the same bytes. If sum is
// true, the input gets a right checksum, so that it gets past that check.
func FuzzFile(f *testing.F) {
	one, two := encodeFile([]Key{generateKey()}), encodeFile([]Key{generateKey(), generateKey()})
	f.Add(one, false)
	f.Add(two[:len(two)-sha256.Size], true)
	f.Add([]byte(magic+"\x02"), true)
	f.Add([]byte(magic+"\x01\xff\xff"), true)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if sum {
			b = summed(b)
		}
		keys, refusal := parseFile(b)
		if refusal != nil {
			refusedWith(t, refusal, model.CodeKeyringInvalid)
			return
		}
		if again := encodeFile(keys); !bytes.Equal(again, b) {
			t.Fatalf("%x is written again as %x", b, again)
		}
	})
}

// FuzzExport: an export is refused with a code before its passphrase is used, or has bounded iterations and exactly
// these parts. The encrypted part is also read here without encryption: it is refused, or has the same keys.
func FuzzExport(f *testing.F) {
	head := append([]byte{exportFormat, 0, 9, 0x27, 0xc0}, make([]byte, saltBytes)...)
	keys := appendKeys(nil, []Key{generateKey(), generateKey()})
	f.Add(pem.EncodeToMemory(&pem.Block{Type: exportType, Bytes: summed(append(head, keys...))}), false)
	f.Add(append(head, keys...), true)
	f.Add(head, true)
	f.Add([]byte{exportFormat, 0xff, 0xff, 0xff, 0xff}, true)
	f.Add([]byte{2}, true)
	f.Fuzz(func(t *testing.T, b []byte, wrap bool) {
		text := b
		if wrap {
			text = pem.EncodeToMemory(&pem.Block{Type: exportType, Bytes: summed(b)})
		}
		e, err := parseExport(text)
		if err != nil {
			refusedWith(t, err, model.CodeIntegrity, model.CodeNotSupported)
			return
		}
		if e.iterations < minIterations || e.iterations > maxIterations || len(e.head) != exportHead {
			t.Fatalf("%d iterations, a head of %d bytes", e.iterations, len(e.head))
		}
		if wrap && !bytes.Equal(slices.Concat(e.head, e.sealed), b) {
			t.Fatalf("%x was read as %x and %x", b, e.head, e.sealed)
		}
		if inside, err := parseKeys(e.sealed); err == nil && !bytes.Equal(appendKeys(nil, inside), e.sealed) {
			t.Fatalf("the keys %x are written again in another way", e.sealed)
		}
	})
}

// FuzzOpenRow: what Seal returned opens under its name and version. Bytes that it did not return, another name and
// another version are refused with a code.
func FuzzOpenRow(f *testing.F) {
	d := DEK{newSecret()}
	f.Add("ca/key", uint64(1), []byte("plain"), []byte{sealedFormat}, uint16(3))
	f.Add("", uint64(0), []byte{}, make([]byte, Overhead), uint16(0))
	f.Add("a", uint64(1)<<63, []byte{0}, bytes.Repeat([]byte{1}, 64), uint16(14))
	f.Fuzz(func(t *testing.T, name string, version uint64, plain, random []byte, at uint16) {
		codes := []model.Code{model.CodeIntegrity, model.CodeInvalid, model.CodeTooLarge}
		if _, err := d.Open(name, version, random); err == nil {
			t.Fatalf("random bytes %x were opened", random)
		} else {
			refusedWith(t, err, codes...)
		}
		sealed, err := d.Seal(name, version, plain)
		if err != nil {
			refusedWith(t, err, model.CodeInvalid, model.CodeTooLarge)
			return
		}
		if got, err := d.Open(name, version, sealed); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("opened as %x, %v", got, err)
		}
		changed := slices.Clone(sealed)
		changed[int(at)%len(sealed)] ^= 1 + byte(at>>8)&0x7e
		for what, open := range map[string]func() ([]byte, error){
			"changed bytes":   func() ([]byte, error) { return d.Open(name, version, changed) },
			"fewer bytes":     func() ([]byte, error) { return d.Open(name, version, sealed[:int(at)%len(sealed)]) },
			"another name":    func() ([]byte, error) { return d.Open(name+"x", version, sealed) },
			"another version": func() ([]byte, error) { return d.Open(name, version^(1<<(at%64)), sealed) },
		} {
			_, err := open()
			if err == nil {
				t.Fatalf("%s were opened", what)
			}
			refusedWith(t, err, codes...)
		}
	})
}
