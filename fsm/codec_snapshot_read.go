package fsm

import (
	"bufio"
	"compress/flate"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/outspan/outspan/model"
)

// ReadSnapshot reads a whole snapshot, checks it and rebuilds the indexes. It needs memory for the new state and one
// frame. It wraps errors of r. All other errors are a *model.Error, with the code needs_format if only a newer program
// can read the snapshot, and otherwise invalid.
func ReadSnapshot(r io.Reader) (State, error) {
	var s *State
	texts := sharing{}
	_, err := scanSnapshot(r, func(meta *metaRow, t *rowTable, body []byte) *model.Error {
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

// InspectSnapshot describes a snapshot, and checks its checksums, counts and digest. It decodes only the first and the
// last frame, so it accepts rows that ReadSnapshot would refuse. If it returns an error, the info has what was read
// before.
func InspectSnapshot(r io.Reader) (SnapshotInfo, error) {
	return scanSnapshot(r, func(*metaRow, *rowTable, []byte) *model.Error { return nil })
}

// scanSnapshot reads and checks a snapshot. It calls visit for the scalars, with t and body nil, and then for each row.
// If it returns an error, info has what was read before.
func scanSnapshot(r io.Reader, visit func(meta *metaRow, t *rowTable, body []byte) *model.Error) (info SnapshotInfo,
	err error) {
	parts := &partReader{r: r}
	defer func() { info.Bytes = parts.read }()
	if info.Format, err = parts.prelude(); err != nil {
		return info, err
	}
	in := newFrameReader(parts)
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

// frameReader reads frames into one buffer, which grows to the size of the largest frame.
type frameReader struct {
	packed *bufio.Reader // the compressed stream without the heads of the parts
	r      *bufio.Reader // the uncompressed frames
	head   [frameHead]byte
	body   []byte
	read   int64
}

func newFrameReader(parts *partReader) *frameReader {
	packed := bufio.NewReader(parts) // flate reads beyond the end of its stream unless it gets an io.ByteReader
	return &frameReader{packed: packed, r: bufio.NewReaderSize(flate.NewReader(packed), 64<<10)}
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

// rows reads the rows of all tables. It counts each row and passes it to visit. It stops after it has read the trailer
// into f.body.
func (f *frameReader) rows(meta *metaRow, counts []TableCount, sum *rowSum,
	visit func(*metaRow, *rowTable, []byte) *model.Error) error {
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
	if err := f.fill(f.head[:]); err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(f.head[1:])
	if size > maxFrame {
		return 0, damaged("it has a row of %d bytes, at most %d are possible", size, maxFrame)
	}
	if f.read += int64(size); f.read > maxUnpacked {
		return 0, damaged("it unpacks to more than %d bytes", int64(maxUnpacked))
	}
	if int(size) > cap(f.body) {
		f.body = make([]byte, size)
	}
	f.body = f.body[:size]
	return tableID(f.head[0]), f.fill(f.body)
}

// trailer compares the trailer in f.body with the counts and the digest of the rows that were read. It also checks that
// nothing follows the trailer.
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
	if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
		return notTheEnd(err, "something follows its last row")
	}
	if _, err := f.packed.ReadByte(); !errors.Is(err, io.EOF) {
		return notTheEnd(err, "something follows its end")
	}
	return nil
}

// notTheEnd returns the error for a stream that did not end with io.EOF. If err is nil, the stream has another byte,
// and the parameter what is the message of the error.
func notTheEnd(err error, what string) error {
	if err != nil {
		return readError(err)
	}
	return damaged("%s", what)
}

func (f *frameReader) fill(p []byte) error {
	_, err := io.ReadFull(f.r, p)
	return readError(err)
}

func damaged(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeInvalid, "the snapshot is damaged: "+format, args...).
		WithHint("use another snapshot; nothing was changed")
}

// buildIndexes builds the indexes of a state after all its rows were read.
func (s *State) buildIndexes() error {
	if err := s.fleet.index(); err != nil {
		return err
	}
	s.jobs.index()
	s.moves.index()
	s.history.index()
	s.trust.index()
	if err := s.instances.index(); err != nil {
		return err
	}
	for _, i := range s.Instances.All() {
		s.accountUnheard(i, nil, i)
		s.accountClass(i, nil, i)
	}
	return nil
}
