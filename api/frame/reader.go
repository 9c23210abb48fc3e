package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Bounds of what a Reader accepts.
const (
	MaxBytes   = 1 << 20 // of a frame
	MaxHandles = 1 << 20 // of a table
)

// Read reads the bytes of the next frame. It returns io.EOF at the end of the stream, and io.ErrUnexpectedEOF in the
// middle of a frame. It uses the memory of buf if that is large enough.
func Read(r io.Reader, buf []byte) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n < headerBytes || n > MaxBytes || n%8 != 0 {
		return nil, fmt.Errorf("read a frame: it can't have %d bytes", n)
	}
	if uint32(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	copy(buf, length[:])
	if _, err := io.ReadFull(r, buf[4:]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}

// Picture is what a stream has shown so far.
type Picture struct {
	Header
	// Whole says that the tables have exactly the rows of Index. It is false while a reader that is slow is still getting
	// changes: what it has got is then of Index or a little older. It is also false while another snapshot arrives. Then
	// the picture does not change, and Age is negative.
	Whole  bool
	Banner Banner
	Counts Counts

	Nodes, Groups, Instances Table
}

// Alone reports whether the server knows no leader.
func (p *Picture) Alone() bool { return p.Flags&FlagAlone != 0 }

func newPicture() *Picture {
	return &Picture{Nodes: NewTable(KindNodes), Groups: NewTable(KindGroups), Instances: NewTable(KindInstances)}
}

func (p *Picture) table(kind Kind) *Table {
	switch kind {
	case KindNodes:
		return &p.Nodes
	case KindGroups:
		return &p.Groups
	case KindInstances:
		return &p.Instances
	case KindBanner, KindCounts:
	}
	return nil
}

// Reader follows streams. The zero value is ready. Not safe for concurrent use.
type Reader struct {
	shown *Picture // nil until a snapshot is whole
	next  *Picture // the snapshot that is arriving, or nil
}

// Apply takes one frame. It returns the picture, which the next Apply changes, or nil until the first snapshot is
// whole. A snapshot that begins later replaces the picture only when it is whole. After an error, open a
// new stream.
func (r *Reader) Apply(raw []byte) (*Picture, error) {
	h, rest, sections, err := parseHeader(raw)
	if err != nil {
		return nil, err
	}
	if h.Flags&FlagReset != 0 {
		r.next = newPicture()
		if r.shown != nil {
			r.shown.Whole, r.shown.Age = false, -1
		}
	}
	p := r.next
	if p == nil {
		p = r.shown
	}
	if p == nil {
		return nil, fmt.Errorf("read a frame: the stream begins without a snapshot")
	}
	p.Header, p.Whole = h, h.Flags&FlagWhole != 0
	for range sections {
		if rest, err = p.section(rest); err != nil {
			return nil, err
		}
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("read a frame: %d bytes follow its sections", len(rest))
	}
	if r.next != nil && p.Whole {
		r.shown, r.next = r.next, nil
	}
	return r.shown, nil
}

func parseHeader(raw []byte) (h Header, rest []byte, sections int, err error) {
	if len(raw) < headerBytes || int64(binary.LittleEndian.Uint32(raw)) != int64(len(raw)) || len(raw)%8 != 0 {
		return h, nil, 0, fmt.Errorf("read a frame: its length is wrong")
	}
	if raw[4] != Version {
		return h, nil, 0, fmt.Errorf("read a frame: it has version %d of the format, and this program knows version %d",
			raw[4], Version)
	}
	h.Flags, h.Index, h.Age = raw[5], binary.LittleEndian.Uint64(raw[8:]), -1
	if age := binary.LittleEndian.Uint32(raw[16:]); age != ageUnknown {
		h.Age = time.Duration(age) * time.Millisecond
	}
	name := int(raw[20])
	from := headerBytes + padded(name)
	if from > len(raw) {
		return h, nil, 0, fmt.Errorf("read a frame: the server's name is cut off")
	}
	h.Server = string(raw[headerBytes : headerBytes+name])
	return h, raw[from:], int(binary.LittleEndian.Uint16(raw[6:])), nil
}

func padded(n int) int { return (n + 7) &^ 7 }

// section takes one section and returns the bytes after it.
func (p *Picture) section(raw []byte) (rest []byte, err error) {
	if len(raw) < sectionBytes {
		return nil, fmt.Errorf("read a frame: a section is cut off")
	}
	n := binary.LittleEndian.Uint32(raw[4:])
	if n < sectionBytes || int64(n) > int64(len(raw)) || n%8 != 0 {
		return nil, fmt.Errorf("read a frame: a section can't have %d bytes", n)
	}
	kind, form, columns, rows := Kind(raw[0]), raw[1], int(raw[2]), binary.LittleEndian.Uint32(raw[8:])
	body := cursor{rest: raw[sectionBytes:n]}
	rest = raw[n:]
	if form == formText {
		text := body.take(int64(rows))
		if body.failed {
			return nil, fmt.Errorf("read a frame: a text is cut off")
		}
		return rest, p.text(kind, text)
	}
	t := p.table(kind)
	if t == nil {
		return rest, nil // of a newer server
	}
	extra := columns - len(t.Columns)
	if t.Names != nil {
		extra--
	}
	if extra < 0 {
		return nil, fmt.Errorf("read a frame: table %d has %d columns", kind, columns)
	}
	handles, err := body.handles(form, rows, binary.LittleEndian.Uint32(raw[12:]))
	if err == nil {
		err = t.take(&body, handles, extra)
	}
	return rest, err
}

func (p *Picture) text(kind Kind, text []byte) error {
	switch kind {
	case KindBanner:
		p.Banner = Banner{}
		return json.Unmarshal(text, &p.Banner)
	case KindCounts:
		p.Counts = Counts{}
		return json.Unmarshal(text, &p.Counts)
	case KindNodes, KindGroups, KindInstances:
	}
	return nil // of a newer server
}

// span is the handles of the rows of a section.
type span struct {
	rows  int
	first uint32
	list  []byte // of 4 bytes each, or nil
}

func (s span) at(i int) uint32 {
	if s.list != nil {
		return binary.LittleEndian.Uint32(s.list[4*i:])
	}
	return s.first + uint32(i)
}

// take writes the rows of a section into the table. It skips the columns of a newer server, whose number is extra.
func (t *Table) take(body *cursor, handles span, extra int) error {
	for i := range handles.rows {
		h := handles.at(i)
		if h >= MaxHandles {
			return fmt.Errorf("read a frame: a table can't have a row %d", h)
		}
		t.Grow(int(h) + 1)
	}
	for _, column := range t.Columns {
		width, value := body.columnHeader()
		raw := body.take(int64(width) * int64(handles.rows))
		if body.failed || width != 0 && int64(value) != int64(width)*int64(handles.rows) {
			return fmt.Errorf("read a frame: a column is cut off")
		}
		for i := range handles.rows {
			switch width {
			case 0:
				column[handles.at(i)] = value
			case 1:
				column[handles.at(i)] = uint32(raw[i])
			case 2:
				column[handles.at(i)] = uint32(binary.LittleEndian.Uint16(raw[2*i:]))
			case 4:
				column[handles.at(i)] = binary.LittleEndian.Uint32(raw[4*i:])
			default:
				return fmt.Errorf("read a frame: a column can't have the width %d", width)
			}
		}
	}
	for range extra {
		if width, value := body.columnHeader(); width != 0 {
			body.take(int64(value))
		}
	}
	if t.Names == nil {
		return nil
	}
	return t.takeNames(body, handles)
}

func (t *Table) takeNames(body *cursor, handles span) error {
	width, total := body.columnHeader()
	ends := body.take(4 * int64(handles.rows))
	text := body.take(int64(total))
	if body.failed || width != widthText {
		return fmt.Errorf("read a frame: the names are cut off")
	}
	from := uint32(0)
	for i := range handles.rows {
		end := binary.LittleEndian.Uint32(ends[4*i:])
		if end < from || int64(end) > int64(len(text)) {
			return fmt.Errorf("read a frame: a name ends where none can")
		}
		t.Names[handles.at(i)] = string(text[from:end])
		from = end
	}
	return nil
}

// cursor reads the body of a section. After a read beyond the end, failed is true and every read returns nothing.
type cursor struct {
	rest   []byte
	failed bool
}

// take returns the next n bytes, and skips the zeros after them.
func (c *cursor) take(n int64) []byte {
	if c.failed || n < 0 || n > int64(len(c.rest)) {
		c.failed = true
		return nil
	}
	out := c.rest[:n]
	c.rest = c.rest[min(padded(int(n)), len(c.rest)):]
	return out
}

func (c *cursor) columnHeader() (width uint8, value uint32) {
	raw := c.take(columnBytes)
	if raw == nil {
		return 0, 0
	}
	return raw[0], binary.LittleEndian.Uint32(raw[4:])
}

func (c *cursor) handles(form uint8, rows, first uint32) (span, error) {
	switch {
	case rows == 0 || rows > MaxHandles:
	case form == formRange && int64(first)+int64(rows) <= MaxHandles:
		return span{rows: int(rows), first: first}, nil
	case form == formList:
		if list := c.take(4 * int64(rows)); !c.failed {
			return span{rows: int(rows), list: list}, nil
		}
	}
	return span{}, fmt.Errorf("read a frame: its handles are wrong")
}
