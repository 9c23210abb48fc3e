package fsm

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/outspan/outspan/model"
)

// A snapshot is a prelude and one DEFLATE stream, which is cut into parts. The stream has one frame for the scalars of
// the state, one frame for each row, and a trailer. Readers and writers need memory for only one frame at a time.
//
//	prelude: magic (8), format (2), CRC-32C of both (4)
//	part:    length (4), CRC-32C of length and bytes (4), bytes of the stream
//	frame:   table (1), length (4), body: one CBOR map
//	trailer: a frame of table 255 with the number of rows of each table and the state's Digest
//
// Numbers are big-endian. The format is that of the cluster, not of the program, because an older server must be able
// to read the snapshot of a newer server while the cluster is being upgraded. Compression at the fastest level takes a
// third more time, but leaves only a fifth of the bytes to store and to send.
const (
	snapshotMagic = "outspan\n"
	preludeSize   = len(snapshotMagic) + 2 + 4
	frameHead     = 1 + 4
	// maxFrame is the most bytes of one row. The largest regular rows are job versions, which are never larger than an
	// entry, and drains of thousands of nodes.
	maxFrame = 8 << 20
	// maxUnpacked is the most bytes of all rows together, so that a small file can't fill the memory.
	maxUnpacked = 16 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// trailerRow is the last row of a snapshot.
type trailerRow struct {
	Tables []TableCount `cbor:"1,keyasint"`
	Digest string       `cbor:"2,keyasint"`
}

// TableCount is the number of rows of one table in a snapshot.
type TableCount struct {
	Name string `cbor:"1,keyasint" json:"name"`
	Rows int    `cbor:"2,keyasint" json:"rows"`
}

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	Format      uint16       `json:"format"`
	Index       uint64       `json:"index"`
	Term        uint64       `json:"term"`
	ClusterID   string       `json:"cluster_id"`
	ClusterName string       `json:"cluster_name"`
	Incarnation uint64       `json:"incarnation"`
	Wall        int64        `json:"wall_ms"` // Unix ms of the last applied entry
	Tables      []TableCount `json:"tables"`
	Bytes       int64        `json:"bytes"`
	Digest      string       `json:"digest"` // the result of the function Digest for the state
}

// WriteSnapshot writes s as a stream. It only reads s, so the server can continue meanwhile. It needs a megabyte of
// memory, and uses a second core if the machine has one. It wraps an error of w. Code: internal (a row is larger than
// maxFrame).
func WriteSnapshot(w io.Writer, s State) error {
	head := binary.BigEndian.AppendUint16([]byte(snapshotMagic), s.Format)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return packParts(w, func(out io.Writer) error { return writeFrames(out, &s) })
}

// writeFrames writes all frames, uncompressed.
func writeFrames(out io.Writer, s *State) error {
	sum, frames := newRowSum(), frameWriter{out: out}
	err := s.eachRow(func(t tableID, body []byte) error {
		sum.add(t, body)
		return frames.write(t, body)
	})
	if err != nil {
		return err
	}
	trailer := trailerRow{Digest: sum.String()}
	for _, t := range rowTables {
		trailer.Tables = append(trailer.Tables, TableCount{t.name, t.size(s)})
	}
	trailer.Tables = filled(trailer.Tables)
	body, err := wire.enc.Marshal(trailer)
	if err != nil {
		return model.Refuse(model.CodeInternal, "the trailer of a snapshot can't be encoded: %v", err)
	}
	return frames.write(trailerTable, body)
}

// filled returns the counts without those of empty tables. An older program that does not know a new table can
// therefore read a newer program's snapshot while that table is empty.
func filled(counts []TableCount) []TableCount {
	return slices.DeleteFunc(slices.Clone(counts), func(c TableCount) bool { return c.Rows == 0 })
}

type frameWriter struct {
	out  io.Writer
	head []byte
}

func (f *frameWriter) write(t tableID, body []byte) error {
	if len(body) > maxFrame {
		return model.Refuse(model.CodeInternal, "a row of table %d has %d bytes, at most %d fit in a snapshot",
			t, len(body), maxFrame)
	}
	f.head = appendFrameHead(f.head[:0], t, body)
	if _, err := f.out.Write(f.head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if _, err := f.out.Write(body); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// appendFrameHead appends the head of a frame, which precedes a row in snapshots and in digests.
func appendFrameHead(b []byte, t tableID, body []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, byte(t)), uint32(len(body)))
}
