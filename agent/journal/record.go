package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fxamacker/cbor/v2"
)

// The file is a header, followed by records. The layout of a record, with sizes in bytes, is
//
//	mark (2) | length of body (4) | CRC-32C of sequence and body (4) | sequence (8) | body (CBOR)
//
// The sequence grows by one from record to record. With SyncEach, a new file has another name until its first records
// are on disk. So no crash leaves a file without a whole record.
const (
	header     = "outspan journal 1\n"
	recordMark = 0xA55E
	recordHead = 18
	bodyLimit  = 16 << 20
	opLimit    = 100_000 // changes in one record; the decoder refuses arrays above 131,072
)

// Op is one change: it sets the value of a key, or removes the key if Delete is set.
type Op struct {
	Key    string `cbor:"1,keyasint"`
	Value  []byte `cbor:"2,keyasint,omitempty"`
	Delete bool   `cbor:"3,keyasint,omitempty"`
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errCut     = errors.New("record is cut off or damaged")
)

// encodeRecord encodes ops as one record, so that they take effect together or not at all. It returns an error if there
// are too many ops, or the record is too large.
func encodeRecord(seq uint64, ops []Op) ([]byte, error) {
	if len(ops) > opLimit {
		return nil, fmt.Errorf("record of %d changes is above the limit of %d", len(ops), opLimit)
	}
	body, err := cbor.Marshal(ops)
	if err != nil {
		return nil, err
	}
	if len(body) > bodyLimit {
		return nil, fmt.Errorf("record of %d bytes is above the limit of %d", len(body), bodyLimit)
	}
	return frameRecord(seq, body), nil
}

// frameRecord puts the record's head in front of a body.
func frameRecord(seq uint64, body []byte) []byte {
	b := make([]byte, recordHead, recordHead+len(body))
	binary.BigEndian.PutUint16(b, recordMark)
	binary.BigEndian.PutUint32(b[2:], uint32(len(body)))
	binary.BigEndian.PutUint64(b[10:], seq)
	b = append(b, body...)
	binary.BigEndian.PutUint32(b[6:], crc32.Checksum(b[10:], castagnoli))
	return b
}

// parseRecord reads the record at the start of b, and returns the record's size. It returns errCut if the record is cut
// off or damaged.
func parseRecord(b []byte) (seq uint64, ops []Op, size int, err error) {
	if len(b) < recordHead || binary.BigEndian.Uint16(b) != recordMark {
		return 0, nil, 0, errCut
	}
	n := binary.BigEndian.Uint32(b[2:])
	if n > bodyLimit || uint64(len(b)) < recordHead+uint64(n) {
		return 0, nil, 0, errCut
	}
	size = recordHead + int(n)
	if binary.BigEndian.Uint32(b[6:]) != crc32.Checksum(b[10:size], castagnoli) {
		return 0, nil, 0, errCut
	}
	if err := cbor.Unmarshal(b[recordHead:size], &ops); err != nil {
		return 0, nil, 0, fmt.Errorf("record with a right checksum can't be decoded: %w", err)
	}
	return binary.BigEndian.Uint64(b[10:]), ops, size, nil
}

// recordAfter reports whether b contains a whole record whose sequence is above seq. Each write is synced before the
// next, so no record follows a write that a crash cut off. If there is a later record, something other than a crash
// caused the damage.
func recordAfter(b []byte, seq uint64) bool {
	for i := 0; i+recordHead <= len(b); i++ {
		if binary.BigEndian.Uint16(b[i:]) != recordMark {
			continue
		}
		if s, _, _, err := parseRecord(b[i:]); err == nil && s > seq {
			return true
		}
	}
	return false
}
