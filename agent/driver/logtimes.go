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

// Each log file has a second file of marks beside it. A mark says when the bytes from a position on were written. The
// time of a line is that of its first byte. Logs of older versions have no marks, so their lines have no times.
const (
	marksSuffix = ".times"
	markSize    = 16                      // bytes: place in the file, Unix ns
	markEvery   = int64(time.Millisecond) // a mark for each write of a busy program would cost as much as its lines
)

type logMark struct{ at, written int64 }

// logClock gives times to the writes of a program's two streams. Its times only grow, whatever the machine's clock
// does. The lock is held until the stamped bytes are in their file, so a reader finds everything older than what it has
// read.
type logClock struct {
	mu     sync.Mutex
	last   int64
	stream Stream // that wrote last
}

// begin stamps a write; other says that the previous write was of the other stream.
func (c *logClock) begin(s Stream) (written int64, other bool) {
	c.mu.Lock()
	c.last = max(c.last+1, time.Now().UnixNano())
	other, c.stream = c.stream != s, s
	return c.last, other
}

func (c *logClock) end() { c.mu.Unlock() }

// openMarks opens the marks of a log file, and cuts off one that a crash left torn.
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

// mark notes when the next byte is written, unless the last mark is recent enough. A mark that can't be written is left
// out.
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
	end  int64 // where the next file begins; 0: it was the newest when it was opened
	file *os.File
	read int64 // bytes
	list []logMark
}

// holds reports whether the byte at an offset is in this file; newest is where the newest known file begins.
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

// at returns when the byte at a position in the file was written; zero if that is unknown.
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

// WrittenAt returns when the byte at an offset was written, as the program's shim noted it. It is zero if the shim did
// not, or if the byte is not kept any more. Call it from the goroutine that reads.
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

// openMarks opens the marks of the file that holds offset.
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
