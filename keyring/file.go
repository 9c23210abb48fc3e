package keyring

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// A keyring file is: magic, its format (1 byte), the number of keys (2 bytes, big endian), the encoded keys with the
// active one first, and the SHA-256 of all that.
const (
	// FileName is the name of a server's keyring file in its data directory.
	FileName = "keyring"

	magic      = "outspan-keyring"
	fileFormat = 1
	headBytes  = len(magic) + 1 + 2
	// MaxKeys is the number of KEKs that a keyring can have.
	MaxKeys = 256
	maxFile = headBytes + MaxKeys*encodedKey + sha256.Size
)

// encodeFile returns the content of a file with these keys. There must be 1 to MaxKeys of them.
func encodeFile(keys []Key) []byte {
	b := append(make([]byte, 0, maxFile), magic...)
	b = append(b, fileFormat)
	b = appendKeys(b, keys)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// parseFile reads the content of a file. The message of its error follows the file's name.
func parseFile(b []byte) ([]Key, *model.Error) {
	if len(b) < headBytes+sha256.Size || string(b[:len(magic)]) != magic {
		return nil, invalid("is not a keyring, or is cut off").WithHint("%s", restoreHint)
	}
	if format := b[len(magic)]; format != fileFormat {
		return nil, invalid("has the unknown format %d", format).
			WithHint("use the version of outspan that wrote it, or a newer one")
	}
	content := b[:len(b)-sha256.Size]
	if sha256.Sum256(content) != [sha256.Size]byte(b[len(content):]) {
		return nil, invalid("is damaged: its checksum is wrong").WithHint("%s", restoreHint)
	}
	keys, err := parseKeys(content[len(magic)+1:])
	if err != nil {
		return nil, invalid("has impossible keys: %s", model.Reason(err)).WithHint("%s", restoreHint)
	}
	return keys, nil
}

func invalid(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeKeyringInvalid, format, args...)
}

const (
	missingHint = "if there are other servers, start this one: it asks them for the keys; otherwise put back the file " +
		"from this server's backup, or the keys of an export: outspan server keyring import"
	restoreHint = "move it away; then, " + missingHint
)

// appendKeys appends the number of keys and the keys.
func appendKeys(b []byte, keys []Key) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(keys)))
	for _, k := range keys {
		b = k.appendTo(b)
	}
	return b
}

// parseKeys reads what appendKeys appended. It refuses bytes that appendKeys does not write.
func parseKeys(b []byte) ([]Key, error) {
	if len(b) < 2 {
		return nil, errors.New("their number is missing")
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; n < 1 || n > MaxKeys || len(b) != n*encodedKey {
		return nil, errors.New("their number does not fit the length")
	}
	keys := make([]Key, 0, n)
	for one := range slices.Chunk(b, encodedKey) {
		k, err := ParseKey(one)
		if err != nil {
			return nil, err
		}
		if find(keys, k.id) >= 0 {
			return nil, errors.New("there is one key twice")
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// find returns the index of the key with this id, or -1.
func find(keys []Key, id ID) int {
	return slices.IndexFunc(keys, func(k Key) bool { return k.id == id })
}

// readFile reads a regular file that only its owner can read. Codes: not_found, keyring_invalid, file_error.
func readFile(path string) ([]byte, error) {
	// A link is refused, because replacing the file would replace the link. O_NONBLOCK is for a FIFO, whose opening would
	// wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, model.Refuse(model.CodeNotFound, "keyring %s does not exist", path).WithHint("%s", missingHint)
	case errors.Is(err, syscall.ELOOP):
		return nil, invalid("keyring %s is a symbolic link", path).WithHint("put the file itself there")
	case err != nil:
		return nil, fileError("read", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fileError("read", path, err)
	case !info.Mode().IsRegular():
		return nil, invalid("keyring %s is not a regular file", path).WithHint("%s", restoreHint)
	case info.Mode().Perm()&0o077 != 0:
		return nil, invalid("keyring %s has mode %04o, so others than its owner can use it", path, info.Mode().Perm()).
			WithHint("run: chmod 600 %s; if others could read it for long, also make a new key", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(maxFile)+1))
	if err != nil {
		return nil, fileError("read", path, err)
	}
	if len(b) > maxFile {
		return nil, invalid("keyring %s is longer than any keyring, %d bytes", path, maxFile).WithHint("%s", restoreHint)
	}
	return b, nil
}

// writeFile replaces the file and returns once the new content is on disk. Code: file_error.
func writeFile(path string, content []byte) error {
	// A file that a crash left there could have another mode, which opening it would keep.
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileError("write", path, err)
	}
	if err := durable.ReplaceBytes(path, content, 0o600); err != nil {
		return fileError("write", path, err)
	}
	return nil
}

func fileError(verb, path string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return model.Refuse(model.CodeFile, "can't %s keyring %s: %v", verb, path, err).
		WithHint("check the disk, and the owner and the mode of the directory")
}
