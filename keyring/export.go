package keyring

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/pem"
	"io"
	"strings"

	"github.com/outspan/outspan/model"
)

// An export is a PEM block. Its bytes are: the format (1 byte), the iterations of PBKDF2 (4 bytes, big endian), a salt,
// the keys as in a keyring file, sealed by AES-256-GCM with all bytes before as associated data, and the SHA-256 of all
// that. The sum tells a damaged export from a wrong passphrase.
const (
	exportType   = "OUTSPAN KEYRING EXPORT"
	exportFormat = 1
	saltBytes    = 16
	exportHead   = 1 + 4 + saltBytes
	maxExport    = 64 << 10 // bytes of text; an export of MaxKeys has 15 KiB

	// An import refuses fewer iterations, because no export has them, and more, because they would take long.
	minIterations = 600_000
	maxIterations = 5_000_000 // a few seconds

	// MinPassphrase and MaxPassphrase bound the length of a passphrase, in bytes.
	MinPassphrase = 12
	MaxPassphrase = 1024
)

// Export writes all keys, encrypted by a passphrase, as text of at most 16 KiB. It takes tenths of a second of CPU.
// Codes: invalid for a passphrase shorter than MinPassphrase or longer than MaxPassphrase; file_error if w fails.
func (r *Ring) Export(w io.Writer, passphrase string) error {
	if n := len(passphrase); n < MinPassphrase || n > MaxPassphrase {
		return model.Refuse(model.CodeInvalid, "a passphrase of %d bytes can't protect an export", n).
			WithHint("choose one of %d to %d bytes; several random words are good", MinPassphrase, MaxPassphrase)
	}
	b := binary.BigEndian.AppendUint32([]byte{exportFormat}, minIterations)
	b = append(b, make([]byte, saltBytes)...)
	rand.Read(b[exportHead-saltBytes:]) // never fails: without randomness, the runtime ends the process
	b = sealExport(b, passphrase, minIterations, *r.keys.Load())
	if err := pem.Encode(w, &pem.Block{Type: exportType, Bytes: b}); err != nil {
		return model.Refuse(model.CodeFile, "can't write the export of keyring %s: %v", r.path, err).
			WithHint("export again to a place with free space")
	}
	return nil
}

// sealExport appends the sealed keys and the sum to the head of an export.
func sealExport(head []byte, passphrase string, iterations int, keys []Key) []byte {
	b := newGCM(stretch(passphrase, head, iterations)).Seal(head, nil, appendKeys(nil, keys), head)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// stretch derives a key from a passphrase and the salt in the head of an export.
func stretch(passphrase string, head []byte, iterations int) secret {
	b, err := pbkdf2.Key(sha256.New, passphrase, head[exportHead-saltBytes:exportHead], iterations, keyBytes)
	if err != nil {
		panic("keyring: PBKDF2: " + err.Error()) // can't happen: all lengths are in the allowed range
	}
	return keep(b)
}

// Import returns the keys of an export, the one that was active first. Pass them to Create or Add. It reads at most
// 64 KiB, and takes at most a few seconds of CPU whatever the export claims. Codes: integrity_check_failed if the text
// is no export or is damaged; not_supported if its format or its number of iterations is unknown; invalid if the
// passphrase is wrong; file_error if src fails.
func Import(src io.Reader, passphrase string) ([]Key, error) {
	text, err := io.ReadAll(io.LimitReader(src, maxExport+1))
	if err != nil {
		return nil, model.Refuse(model.CodeFile, "can't read the export: %v", err).WithHint("check the file and its disk")
	}
	e, err := parseExport(text)
	if err != nil {
		return nil, err
	}
	return e.open(passphrase)
}

// export is an export that is read but still encrypted.
type export struct {
	head, sealed []byte
	iterations   int
}

// parseExport reads an export without its passphrase. Codes: integrity_check_failed, not_supported.
func parseExport(text []byte) (export, error) {
	block, rest := pem.Decode(text)
	if len(text) > maxExport || block == nil || block.Type != exportType || len(block.Headers) > 0 ||
		strings.TrimSpace(string(rest)) != "" || len(block.Bytes) == 0 {
		return export{}, damagedExport("this is not one export of a keyring: a block %q", "BEGIN "+exportType)
	}
	b := block.Bytes
	if b[0] != exportFormat {
		return export{}, model.Refuse(model.CodeNotSupported, "the export has the unknown format %d", b[0]).
			WithHint("use the version of outspan that wrote it, or a newer one")
	}
	if len(b) < exportHead+sha256.Size {
		return export{}, damagedExport("the export is cut off")
	}
	content := b[:len(b)-sha256.Size]
	if sha256.Sum256(content) != [sha256.Size]byte(b[len(content):]) {
		return export{}, damagedExport("the export is damaged: its checksum is wrong")
	}
	n := binary.BigEndian.Uint32(b[1:])
	if n < minIterations || n > maxIterations {
		return export{}, model.Refuse(model.CodeNotSupported, "the export asks for %d iterations of PBKDF2, not %d to %d",
			n, minIterations, maxIterations).
			WithHint("don't use it if it came from others: outspan did not write it")
	}
	return export{content[:exportHead:exportHead], content[exportHead:], int(n)}, nil
}

func damagedExport(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeIntegrity, format, args...).
		WithHint("use another copy of it, or export again from a server that still has its keyring")
}

// open decrypts an export. Codes: invalid, integrity_check_failed.
func (e export) open(passphrase string) ([]Key, error) {
	b, err := newGCM(stretch(passphrase, e.head, e.iterations)).Open(nil, nil, e.sealed, e.head)
	if err != nil {
		return nil, model.Refuse(model.CodeInvalid, "the passphrase does not open the export").
			WithHint("use the passphrase that was given when this export was made")
	}
	keys, err := parseKeys(b)
	if err != nil {
		return nil, damagedExport("the export has impossible keys: %s", model.Reason(err))
	}
	return keys, nil
}
