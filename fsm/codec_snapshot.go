package fsm

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// A snapshot is a prelude, one frame for the scalars of the state, one frame for each row, and a trailer. No part of it is larger than a frame, however
// large the state is.
//
//	prelude: magic (8), format (2), CRC-32C of both (4)
//	frame:   table (1), length (4), CRC-32C of table, length and body (4), body: one CBOR map
//	trailer: a frame of table 255 with the number of rows of each table and the state's Digest
//
// Numbers are big-endian. The format is the cluster's, not the program's: an older server must be able to take a newer one's snapshot while the
// cluster is being upgraded.
const (
	snapshotMagic = "outspan\n"
	preludeSize   = len(snapshotMagic) + 2 + 4
	frameHead     = 1 + 4 + 4
	// maxFrame bounds one row. The largest honest one is a job version (at most an entry) or a drain of thousands of nodes.
	maxFrame = 8 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// trailerRow ends a snapshot.
type trailerRow struct {
	Tables []TableCount `cbor:"1,keyasint"`
	Digest string       `cbor:"2,keyasint"`
}

// TableCount is the number of rows that a snapshot has of one table.
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
	Wall        int64        `json:"wall_ms"` // Unix ms of the last entry in it
	Tables      []TableCount `json:"tables"`
	Bytes       int64        `json:"bytes"`
	Digest      string       `json:"digest"` // what Digest returns for the state
}

// WriteSnapshot writes s as a stream. It only reads s, so the server goes on meanwhile; it needs memory for one row. An error of w is returned
// wrapped; code internal means that a row is too large for any reader.
func WriteSnapshot(w io.Writer, s State) error {
	out := bufio.NewWriterSize(w, 64<<10)
	head := binary.BigEndian.AppendUint16([]byte(snapshotMagic), s.Format)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	if _, err := out.Write(head); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	sum := newRowSum()
	err := s.eachRow(func(t tableID, body []byte) error {
		sum.add(t, body)
		return writeFrame(out, t, body)
	})
	if err != nil {
		return err
	}
	trailer := trailerRow{Digest: sum.String()}
	for _, t := range rowTables {
		trailer.Tables = append(trailer.Tables, TableCount{t.name, t.size(&s)})
	}
	trailer.Tables = filled(trailer.Tables)
	var buf bytes.Buffer
	if err := wire.enc.MarshalToBuffer(trailer, &buf); err != nil {
		return Refuse(CodeInternal, "the trailer of a snapshot can't be encoded: %v", err)
	}
	if err := writeFrame(out, trailerTable, buf.Bytes()); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// filled leaves the empty tables out: two programs that know different ones can read each other's snapshots while the new ones are empty.
func filled(counts []TableCount) []TableCount {
	return slices.DeleteFunc(slices.Clone(counts), func(c TableCount) bool { return c.Rows == 0 })
}

func writeFrame(w io.Writer, t tableID, body []byte) error {
	if len(body) > maxFrame {
		return Refuse(CodeInternal, "a row of table %d has %d bytes, at most %d fit in a snapshot", t, len(body), maxFrame)
	}
	var head [frameHead]byte
	head[0] = byte(t)
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	binary.BigEndian.PutUint32(head[5:], frameSum(head[:5], body))
	if _, err := w.Write(head[:]); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func frameSum(head, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body)
}

// ReadSnapshot reads a whole snapshot and builds the indexes anew. It holds the new state in memory and one frame beside it. Everything is checked before
// a State is returned: checksums, order, counts, the digest, and that nothing follows. Errors of r are wrapped; the rest are
// *Error, with code needs_format for a snapshot of a newer program and invalid for one that is damaged or none at all.
func ReadSnapshot(r io.Reader) (State, error) {
	var s *State
	texts := sharing{}
	_, err := scanSnapshot(r, func(meta *metaRow, t *rowTable, body []byte) *Error {
		if t == nil {
			s = meta.empty()
			return nil
		}
		return t.add(s, body, texts)
	})
	if err != nil {
		return State{}, err
	}
	if err := s.buildIndexes(); err != nil {
		return State{}, err
	}
	return s.publish(), nil
}

// InspectSnapshot checks a snapshot as ReadSnapshot does, but decodes only its first and last frame, and returns what it is. Same errors; what was read
// before is returned with them.
func InspectSnapshot(r io.Reader) (SnapshotInfo, error) {
	return scanSnapshot(r, func(*metaRow, *rowTable, []byte) *Error { return nil })
}

// scanSnapshot calls visit for the scalars (t is nil) and then for each row. With an error it returns what it knows until then.
func scanSnapshot(r io.Reader, visit func(meta *metaRow, t *rowTable, body []byte) *Error) (info SnapshotInfo, err error) {
	in := frameReader{r: bufio.NewReaderSize(r, 64<<10)}
	defer func() { info.Bytes = in.read }()
	if info.Format, err = in.prelude(); err != nil {
		return info, err
	}
	var meta metaRow
	if err := in.meta(&meta); err != nil {
		return info, err
	}
	info.Index, info.Term, info.ClusterID, info.ClusterName = meta.Index, meta.LogTerm, meta.Cluster.ID, meta.Cluster.Name
	info.Incarnation, info.Wall = meta.Incarnation, meta.Wall
	if meta.Format != info.Format {
		return info, damaged("it says format %d and format %d", info.Format, meta.Format)
	}
	sum := newRowSum()
	sum.add(metaTable, in.body)
	if err := visit(&meta, nil, nil); err != nil {
		return info, err
	}
	info.Tables = make([]TableCount, len(rowTables))
	for i := range rowTables {
		info.Tables[i].Name = rowTables[i].name
	}
	if err := in.rows(&meta, info.Tables, sum, visit); err != nil {
		return info, err
	}
	if err := in.trailer(info.Tables, sum.String()); err != nil {
		return info, err
	}
	info.Digest = sum.String()
	return info, nil
}

// frameReader reads frames into one buffer that grows to the largest.
type frameReader struct {
	r    *bufio.Reader
	body []byte
	read int64
}

// prelude reads what stands before the first frame and returns the format.
func (f *frameReader) prelude() (uint16, error) {
	var head [preludeSize]byte
	if err := f.fill(head[:]); err != nil {
		return 0, err
	}
	magic, rest := string(head[:len(snapshotMagic)]), head[len(snapshotMagic):]
	if magic != snapshotMagic {
		return 0, Refuse(CodeInvalid, "this is no outspan snapshot").WithHint("give a file that was written by: outspan server snapshot save")
	}
	if crc32.Checksum(head[:preludeSize-4], castagnoli) != binary.BigEndian.Uint32(rest[2:]) {
		return 0, damaged("its head does not match its checksum")
	}
	format := binary.BigEndian.Uint16(rest)
	if format > CurrentFormat {
		return 0, needsFormat("the snapshot", format)
	}
	return format, nil
}

func (f *frameReader) meta(m *metaRow) error {
	t, err := f.next()
	if err != nil {
		return err
	}
	if t != metaTable {
		return damaged("it begins with table %d", t)
	}
	if err := decodeRow("scalars", f.body, m); err != nil {
		return err
	}
	return nil
}

// rows reads the rows of all tables, counts them and visits them, up to the trailer, which is left in body.
func (f *frameReader) rows(meta *metaRow, counts []TableCount, sum rowSum, visit func(*metaRow, *rowTable, []byte) *Error) error {
	for at := 0; ; {
		t, err := f.next()
		if err != nil {
			return err
		}
		if t == trailerTable {
			return nil
		}
		for at < len(rowTables) && rowTables[at].id != t {
			at++
		}
		if at == len(rowTables) {
			return damaged("table %d is unknown or out of order", t)
		}
		sum.add(t, f.body)
		counts[at].Rows++
		if err := visit(meta, &rowTables[at], f.body); err != nil {
			return err
		}
	}
}

// next reads one frame into body and returns its table.
func (f *frameReader) next() (tableID, error) {
	var head [frameHead]byte
	if err := f.fill(head[:]); err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, damaged("it has a row of %d bytes, at most %d are possible", size, maxFrame)
	}
	if int(size) > cap(f.body) {
		f.body = make([]byte, size)
	}
	f.body = f.body[:size]
	if err := f.fill(f.body); err != nil {
		return 0, err
	}
	if frameSum(head[:5], f.body) != binary.BigEndian.Uint32(head[5:]) {
		return 0, damaged("a row at byte %d does not match its checksum", f.read-int64(size))
	}
	return tableID(head[0]), nil
}

// trailer compares the last frame with what was read, and makes sure that it is the last.
func (f *frameReader) trailer(counts []TableCount, digest string) error {
	var t trailerRow
	if err := decodeRow("the trailer", f.body, &t); err != nil {
		return err
	}
	if got := filled(counts); !slices.Equal(t.Tables, got) {
		return damaged("it has the rows %v and says %v", got, t.Tables)
	}
	if t.Digest != digest {
		return damaged("its rows do not match its digest")
	}
	if _, err := f.r.ReadByte(); err == nil {
		return damaged("something follows its end at byte %d", f.read)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read snapshot: %w", err)
	}
	return nil
}

func (f *frameReader) fill(p []byte) error {
	n, err := io.ReadFull(f.r, p)
	f.read += int64(n)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it ends too early, after %d bytes", f.read)
	}
	return fmt.Errorf("read snapshot: %w", err)
}

func damaged(format string, args ...any) *Error {
	return Refuse(CodeInvalid, "the snapshot is damaged: "+format, args...).WithHint("use another snapshot; nothing was changed")
}

// ownPorts makes an instance the owner of its ports.
func (s *State) ownPorts(i *Instance) error {
	for _, name := range sortedKeys(i.Claims.Ports) {
		port := i.Claims.Ports[name]
		switch owner, taken := s.PortOwner(i.Node, port); {
		case !taken:
			s.ownPort(i.Node, port, i.ID)
		case !slices.Contains(i.Links.Awaits, owner):
			return damaged("instances %s and %s hold the same port %d of node %s", owner, i.ID, port, i.Node)
		}
	}
	return nil
}

// buildIndexes derives the indexes of a state that was read.
func (s *State) buildIndexes() error {
	for id, n := range s.Nodes.All() {
		if owner, taken := s.nodeNames.Get(n.Name); taken {
			return damaged("nodes %s and %s have the same name %s", owner, id, n.Name)
		}
		s.nodeNames.put(n.Name, id)
		s.indexNode(n)
	}
	for id, g := range s.Groups.All() {
		mark(s.unsettled, id, g.unsettled())
	}
	for id, d := range s.Deployments.All() {
		mark(s.openDeployments, id, !d.Status.Ended())
	}
	for _, i := range s.Instances.All() {
		s.indexInstance(nil, i)
		s.accountClass(i, nil, i)
		if !i.takesRoom() {
			continue
		}
		if err := s.ownPorts(i); err != nil {
			return err
		}
	}
	for _, i := range s.Instances.All() { // what waits for room has the ports that those don't have which it waits for
		if i.WaitsForRoom() {
			if err := s.ownPorts(i); err != nil {
				return err
			}
		}
	}
	for id, r := range s.Requests.All() {
		s.requestLog.put(r.Index, id)
	}
	for id, v := range s.Volumes.All() {
		if v.Kind == VolumeReplicated {
			s.copiesOn.put(copyKey(v), id)
		}
	}
	return nil
}
