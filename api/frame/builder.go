package frame

import (
	"encoding/binary"
	"slices"
	"time"
)

// Version is the version of the format.
const Version = 1

// The flags of a frame.
const (
	FlagReset = 1 << iota // begins a snapshot: what follows, up to the next FlagWhole, replaces everything before
	FlagWhole             // with this frame the reader has exactly the rows of the index
	FlagAlone             // the server knows no leader, so the rows are old by Age
)

const (
	headerBytes  = 24 // without the server's name
	sectionBytes = 16
	columnBytes  = 8
	maxServer    = 255
	ageUnknown   = ^uint32(0)
)

// The forms of a section.
const (
	formText  = 0
	formRange = 1 // rows with consecutive handles
	formList  = 2 // each row with its handle
)

// widthText is the width of the column of names.
const widthText = 255

// Header begins each frame.
type Header struct {
	Flags  uint8
	Server string // name, of at most 255 bytes
	Index  uint64 // log index of the state that the frame shows
	// Age is how long ago the server last provably had everything that was committed; negative if it never had.
	Age time.Duration
}

// Builder builds one frame at a time. The zero value is ready for Begin. Not safe for concurrent use.
type Builder struct {
	buf      []byte
	sections int
}

// Begin starts a frame in buf, whose content is overwritten and whose memory is used.
func (b *Builder) Begin(buf []byte, h Header) {
	server := h.Server[:min(len(h.Server), maxServer)]
	age := ageUnknown
	if h.Age >= 0 {
		age = uint32(min(h.Age.Milliseconds(), int64(ageUnknown-1)))
	}
	b.sections = 0
	b.buf = slices.Grow(buf[:0], headerBytes)[:headerBytes]
	clear(b.buf)
	b.buf[4], b.buf[5] = Version, h.Flags
	binary.LittleEndian.PutUint64(b.buf[8:], h.Index)
	binary.LittleEndian.PutUint32(b.buf[16:], age)
	b.buf[20] = uint8(len(server))
	b.buf = append(b.buf, server...)
	b.pad()
}

// SetFlags adds flags to the frame.
func (b *Builder) SetFlags(flags uint8) { b.buf[5] |= flags }

// Len returns the number of bytes so far.
func (b *Builder) Len() int { return len(b.buf) }

// Empty reports whether the frame has no section yet.
func (b *Builder) Empty() bool { return b.sections == 0 }

// Text adds a section with JSON.
func (b *Builder) Text(kind Kind, text []byte) {
	at := b.section(kind, formText, 0, len(text), 0)
	b.buf = append(b.buf, text...)
	b.end(at)
}

// Rows adds a section with rows. The columns and names are those of the rows, in the order of the handles, which must
// be ascending. The columns must be as many as the kind has.
func (b *Builder) Rows(kind Kind, handles []uint32, columns [][]uint32, names []string) {
	if len(handles) == 0 {
		return
	}
	n, form, first := len(columns), formList, uint32(0)
	if names != nil {
		n++
	}
	if int(handles[len(handles)-1]-handles[0])+1 == len(handles) {
		form, first = formRange, handles[0]
	}
	at := b.section(kind, form, n, len(handles), first)
	if form == formList {
		b.numbers(handles, 4)
	}
	for _, column := range columns {
		b.column(column)
	}
	if names != nil {
		b.names(names)
	}
	b.end(at)
}

// Finish returns the frame. It is valid until the memory is used for another one.
func (b *Builder) Finish() []byte {
	binary.LittleEndian.PutUint32(b.buf, uint32(len(b.buf)))
	binary.LittleEndian.PutUint16(b.buf[6:], uint16(b.sections))
	return b.buf
}

// section begins a section and returns its position.
func (b *Builder) section(kind Kind, form, columns, rows int, first uint32) (at int) {
	b.sections++
	at = len(b.buf)
	b.buf = append(b.buf, byte(kind), byte(form), byte(columns), 0, 0, 0, 0, 0)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(rows))
	b.buf = binary.LittleEndian.AppendUint32(b.buf, first)
	return at
}

func (b *Builder) end(at int) {
	b.pad()
	binary.LittleEndian.PutUint32(b.buf[at+4:], uint32(len(b.buf)-at))
}

// column adds a column with the least width that its values fit into.
func (b *Builder) column(values []uint32) {
	least, most := slices.Min(values), slices.Max(values)
	width := 4
	switch {
	case least == most:
		width = 0
	case most < 1<<8:
		width = 1
	case most < 1<<16:
		width = 2
	}
	b.buf = append(b.buf, byte(width), 0, 0, 0)
	if width == 0 {
		b.buf = binary.LittleEndian.AppendUint32(b.buf, least)
		return
	}
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(width*len(values)))
	b.numbers(values, width)
}

func (b *Builder) numbers(values []uint32, width int) {
	at := len(b.buf)
	b.buf = slices.Grow(b.buf, width*len(values)+8)[:at+width*len(values)]
	to := b.buf[at:]
	switch width {
	case 1:
		for i, v := range values {
			to[i] = byte(v)
		}
	case 2:
		for i, v := range values {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(v))
		}
	default:
		for i, v := range values {
			binary.LittleEndian.PutUint32(to[4*i:], v)
		}
	}
	b.pad()
}

// names adds the column of names: where each ends, and then their text.
func (b *Builder) names(names []string) {
	total := 0
	for _, name := range names {
		total += len(name)
	}
	b.buf = append(b.buf, widthText, 0, 0, 0)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(total))
	end := uint32(0)
	for _, name := range names {
		end += uint32(len(name))
		b.buf = binary.LittleEndian.AppendUint32(b.buf, end)
	}
	b.pad()
	for _, name := range names {
		b.buf = append(b.buf, name...)
	}
	b.pad()
}

// pad adds zeros up to a multiple of 8 bytes, so that every column begins at a multiple of its width.
func (b *Builder) pad() {
	for len(b.buf)%8 != 0 {
		b.buf = append(b.buf, 0)
	}
}
