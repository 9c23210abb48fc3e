package driver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/internal/durable"
)

// A record file contains one value: magic, checksum, length, CBOR. It is replaced as a whole, by a temporary file and a
// rename, so a reader sees either the old value or the new one. The checksum detects bytes that the disk changed.
// Unknown fields are ignored, because agents read the files of shims of other releases.
const (
	recordMagic = "OSR1"
	recordLimit = 8 << 20 // bytes of CBOR
)

var errRecordDamaged = errors.New("record is damaged")

func encodeRecord(v any) ([]byte, error) {
	body, err := cbor.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	if len(body) > recordLimit {
		return nil, fmt.Errorf("record of %d bytes is above the limit of %d", len(body), recordLimit)
	}
	b := make([]byte, 0, len(body)+12)
	b = append(b, recordMagic...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...), nil
}

func decodeRecord(b []byte, v any) error {
	if len(b) < 12 || string(b[:4]) != recordMagic {
		return errRecordDamaged
	}
	body := b[12:]
	if uint64(binary.BigEndian.Uint32(b[8:])) != uint64(len(body)) ||
		binary.BigEndian.Uint32(b[4:]) != crc32.ChecksumIEEE(body) {
		return errRecordDamaged
	}
	if err := cbor.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errRecordDamaged, err)
	}
	return nil
}

// WriteRecord writes v, encoded as CBOR with a checksum, to the file at path in place of its old content. Once
// WriteRecord has returned nil, v survives a power cut. A crash at any moment leaves either the old value or the new
// one.
func WriteRecord(path string, v any) error {
	if err := replaceRecord(path, v, (*os.File).Sync); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}

// writeVolatile is a cheaper WriteRecord: it does not force the value to the disk. It is for data that means nothing
// after a reboot, such as the identity of a process.
func writeVolatile(path string, v any) error {
	return replaceRecord(path, v, func(*os.File) error { return nil })
}

func replaceRecord(path string, v any, sync func(*os.File) error) error {
	b, err := encodeRecord(v)
	if err != nil {
		return err
	}
	dir, name := filepath.Split(path)
	tmp := filepath.Join(dir, "."+name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = sync(f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// ReadRecord reads into v the value that WriteRecord wrote to path. It returns os.ErrNotExist if there is no such file.
// Any other error means that the file can't be read or is damaged.
func ReadRecord(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := decodeRecord(b, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return nil
}
