package keyring

import (
	"encoding/binary"

	"github.com/outspan/outspan/model"
)

// DEK is a data key, which encrypts rows. It should seal at most 2^32 rows, because nonces are random. The zero value
// is no key. A DEK never changes, so it is safe for concurrent use.
type DEK struct{ secret secret }

// Wrapped is a data key as the state has it: encrypted by a KEK. It is not secret. The fields must be stored together.
type Wrapped struct {
	KEK   ID
	Bytes []byte
}

// Limits of a row, in bytes. A sealed row is Overhead bytes longer than its content.
const (
	MaxName  = 1 << 10
	MaxPlain = 1 << 20
	Overhead = 1 + 12 + 16 // format, nonce, tag
)

// sealedFormat is the first byte of a sealed row and of a wrapped data key.
const sealedFormat = 1

// wrap encrypts the data key by a KEK.
func (d DEK) wrap(k Key) Wrapped {
	b := newGCM(derive(k.secret, purposeWrap)).Seal([]byte{sealedFormat}, nil, d.secret(), wrapData(k.id))
	return Wrapped{k.id, b}
}

// wrapData returns the associated data of a wrapped data key.
func wrapData(kek ID) []byte { return []byte("outspan data key 1: " + string(kek)) }

func (w Wrapped) open(k Key) (DEK, error) {
	damaged := model.Refuse(model.CodeIntegrity, "the data key that KEK %s wrapped is damaged", k.id).
		WithHint("restore a snapshot; rows under this data key can't be read without it")
	if len(w.Bytes) != keyBytes+Overhead || w.Bytes[0] != sealedFormat {
		return DEK{}, damaged
	}
	b, err := newGCM(derive(k.secret, purposeWrap)).Open(nil, nil, w.Bytes[1:], wrapData(k.id))
	if err != nil {
		return DEK{}, damaged
	}
	return DEK{keep(b)}, nil
}

// Seal encrypts the content of the row with this name and version. Only Open with the same name and version opens it,
// so nobody can pass it off as another row or as another version of the row. Two calls with the same input return
// different bytes. The content may be empty. Codes: invalid for a missing name, or one longer than MaxName; too_large
// for a content longer than MaxPlain.
func (d DEK) Seal(name string, version uint64, plain []byte) ([]byte, error) {
	if err := checkRow(name, len(plain)); err != nil {
		return nil, err
	}
	sealed := make([]byte, 1, len(plain)+Overhead)
	sealed[0] = sealedFormat
	return newGCM(d.secret).Seal(sealed, nil, plain, rowData(name, version)), nil
}

// Open returns the content of a row that Seal encrypted. Codes: as Seal, and integrity_check_failed if the row is
// damaged, has an unknown format, or was sealed under another name, version or data key.
func (d DEK) Open(name string, version uint64, sealed []byte) ([]byte, error) {
	if err := checkRow(name, len(sealed)-Overhead); err != nil {
		return nil, err
	}
	if len(sealed) < Overhead {
		return nil, refuseRow(name, version, "is cut off").
			WithHint("compare with another server: outspan server health; or restore a snapshot")
	}
	if sealed[0] != sealedFormat {
		return nil, refuseRow(name, version, "has a format that this version of outspan does not know").
			WithHint("use the version of outspan that wrote it, or a newer one")
	}
	plain, err := newGCM(d.secret).Open(nil, nil, sealed[1:], rowData(name, version))
	if err != nil {
		return nil, refuseRow(name, version, "is damaged, or was sealed as another row or by another data key").
			WithHint("compare with another server: outspan server health; or restore a snapshot")
	}
	return plain, nil
}

func refuseRow(name string, version uint64, how string) *model.Error {
	return model.Refuse(model.CodeIntegrity, "sealed row %q, version %d, %s", model.Clip(name), version, how)
}

func checkRow(name string, plain int) error {
	switch {
	case name == "" || len(name) > MaxName:
		return model.Refuse(model.CodeInvalid, "the name of a sealed row has %d bytes", len(name)).
			WithHint("use a name of 1 to %d bytes", MaxName)
	case plain > MaxPlain:
		return model.Refuse(model.CodeTooLarge, "sealed row %q has %d bytes", model.Clip(name), plain).
			WithHint("a sealed row has at most %s", model.SizeText(MaxPlain))
	}
	return nil
}

// rowData returns the associated data of a row. The version has a fixed length, so that no two pairs of a name and a
// version give the same bytes.
func rowData(name string, version uint64) []byte {
	return append(binary.BigEndian.AppendUint64([]byte("outspan row 1: "), version), name...)
}

// String hides the key.
func (DEK) String() string { return "[data key]" }

// GoString hides the key.
func (DEK) GoString() string { return "[data key]" }
