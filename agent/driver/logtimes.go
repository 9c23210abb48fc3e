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
// from there to the next mark were written. The time of a line is that of its first byte. Logs of older versions have
// no marks, so their lines have no times.
const (
	marksSuffix = ".times"
	markSize    = 16                      // bytes: position in the log file, Unix ns
	markEvery   = int64(time.Millisecond) // marks of each write of a busy program would take as much room as its lines
)

type logMark struct{ at, written int64 }

// logClock gives a time to each write of a program's two streams. Each time is later than the one before, whatever the
// machine's clock does. The lock is held until the bytes are in their file. So a reader who has read some bytes can
// find all bytes with earlier times in the files.
type logClock struct {
	mu     sync.Mutex
	last   int64
	stream Stream // the stream of the last write
}

// begin locks the clock and returns the time of a write. other is true unless the last write was to the same stream.
// The caller must call end.
func (c *logClock) begin(s Stream) (written int64, other bool) {
	c.mu.Lock()
	c.last = max(c.last+1, time.Now().UnixNano())
	other, c.stream = c.stream != s, s
	return c.last, other
}

func (c *logClock) end() { c.mu.Unlock() }

// openMarks opens the marks of a log file for appending, and makes the file if it is missing. It cuts off a mark that a
// crash left incomplete.
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

// mark adds a mark for the next byte, unless the last mark is recent and the other stream was not written meanwhile. A
// mark that can't be written is left out.
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
	end  int64 // where the next log file begins; 0 = there was none when the marks were opened
	file *os.File
	read int64 // how many bytes of file were read
	list []logMark
}

// holds reports whether the byte at offset is in the log file of these marks. newest is where the newest known log file
// begins. holds returns false if no marks are open.
func (m *logMarks) holds(offset, newest int64) bool {
	switch {
	case m.file == nil || offset < m.base:
		return false
	case m.end > 0:
		return offset < m.end
	}
	return offset < newest || m.base >= newest
}

// more reads the marks that were added since the last read.
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

// at returns when the byte at place, a position in the log file, was written. It returns the zero time if that is
// unknown.
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

// WrittenAt returns when the byte at offset was written, according to the shim. It returns the zero time if the shim
// noted none, if the byte is not kept any more, or if the reader is closed. Call it from the goroutine that reads.
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

// openMarks closes the open marks, and opens those of the log file that holds offset, if there are any.
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
