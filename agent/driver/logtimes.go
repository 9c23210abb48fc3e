package driver

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sort"
	"sync"
	"time"
)

// Each log file has a file of marks beside it. A mark has a position in the log file, and the time at which the bytes
// from this position to the next mark were written. The time of a line is that of its first byte. Logs of older
// versions have no marks, so their lines have no times.
const (
	marksSuffix = ".times"
	markSize    = 16                      // bytes: position in the log file, Unix ns
	markEvery   = int64(time.Millisecond) // least ns between marks; one per write could take as much room as the lines
)

type logMark struct{ at, written int64 }

// logClock gives a time to each write of a program's two streams. Each time is later than the one before, even if the
// machine's clock is set back. The lock is held until the bytes are in their file. So when a reader sees some bytes,
// all bytes with earlier times, of both streams, are in the files already.
type logClock struct {
	mu     sync.Mutex
	last   int64
	stream Stream // the stream of the last write
}

// begin locks the clock and returns the time of a write to stream s. other is false if the write before was to s too.
// The caller must call end.
func (c *logClock) begin(s Stream) (written int64, other bool) {
	c.mu.Lock()
	c.last = max(c.last+1, time.Now().UnixNano())
	other, c.stream = c.stream != s, s
	return c.last, other
}

func (c *logClock) end() { c.mu.Unlock() }

// openMarks opens the file of marks of the log file at path for appending, and makes the file of marks if it is
// missing. It cuts off a mark that a crash left incomplete.
func openMarks(path string) (*os.File, error) {
	f, err := os.OpenFile(path+marksSuffix, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size()%markSize != 0 {
		err = f.Truncate(st.Size() / markSize * markSize)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// mark adds a mark for the next byte, unless the last mark is less than markEvery old and the other stream was not
// written meanwhile. If the mark can't be written, the byte gets the time of the mark before.
func (w *logWriter) mark(written int64, other bool) {
	if w.marks == nil || w.marked != 0 && !other && written-w.marked < markEvery {
		return
	}
	var record [markSize]byte
	binary.LittleEndian.PutUint64(record[:8], uint64(w.size))
	binary.LittleEndian.PutUint64(record[8:], uint64(written))
	if _, err := w.marks.Write(record[:]); err == nil {
		w.marked = written
	}
}

// logMarks are the marks of the log file that begins at base.
type logMarks struct {
	base int64
	end  int64 // where the next log file begins; 0 = no next log file existed when the marks were opened
	file *os.File
	read int64 // number of bytes of file that are in list
	list []logMark
}

// holds reports whether the byte at offset is in the log file of these marks. newest is the base of the log file that
// the reader has open. holds returns false if no marks are open.
func (m *logMarks) holds(offset, newest int64) bool {
	switch {
	case m.file == nil || offset < m.base:
		return false
	case m.end > 0:
		return offset < m.end
	}
	return offset < newest || m.base >= newest
}

// more appends to list the marks that were written since its last call.
func (m *logMarks) more() {
	if m.file == nil {
		return
	}
	var buf [256 * markSize]byte
	for {
		n, err := m.file.ReadAt(buf[:], m.read)
		n -= n % markSize
		for i := 0; i < n; i += markSize {
			place, written := binary.LittleEndian.Uint64(buf[i:]), binary.LittleEndian.Uint64(buf[i+8:])
			m.list = append(m.list, logMark{int64(place), int64(written)})
		}
		m.read += int64(n)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}

// at returns when the byte at place, a position in the log file, was written. It returns the zero time if no mark
// covers the byte.
func (m *logMarks) at(place int64) time.Time {
	if n := len(m.list); n == 0 || m.list[n-1].at < place {
		m.more()
	}
	i := sort.Search(len(m.list), func(i int) bool { return m.list[i].at > place })
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, m.list[i-1].written)
}

func (m *logMarks) close() {
	if m.file != nil {
		m.file.Close()
	}
	*m = logMarks{base: -1}
}

// WrittenAt returns when the shim wrote the byte at offset, a position in the stream. It returns the zero time if the
// shim recorded no time, if the byte was rotated away, or if the reader is closed. Call it from the goroutine that
// calls Read.
func (r *LogReader) WrittenAt(offset int64) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return time.Time{}
	}
	if !r.marks.holds(offset, r.base) {
		r.openMarks(offset)
	}
	return r.marks.at(offset - r.marks.base)
}

// openMarks closes the open marks, and opens the marks of the log file that contains the byte at offset. If there are
// no such marks, none are open afterwards.
func (r *LogReader) openMarks(offset int64) {
	files, err := logFiles(r.dir, r.stream)
	i := sort.Search(len(files), func(i int) bool { return files[i].base > offset }) - 1
	if err != nil || i < 0 {
		r.marks.close()
		return
	}
	r.marks.close()
	r.marks.base = files[i].base
	if i+1 < len(files) {
		r.marks.end = files[i+1].base
	}
	if f, err := os.Open(files[i].path + marksSuffix); err == nil {
		r.marks.file = f
	}
}
