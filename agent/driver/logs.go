package driver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// Stream is one of the two outputs of a program.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Valid reports whether s is one of the streams.
func (s Stream) Valid() bool { return s == Stdout || s == Stderr }

// String implements fmt.Stringer.
func (s Stream) String() string { return string(s) }

// logFile is one file of a stream. A stream is a sequence of bytes, counted from 0 over all runs of the instance. Its
// files are named STREAM.OFFSET, where OFFSET (20 digits) is the position in the stream of the file's first byte. With
// these names no file is ever renamed, and no index is needed that a crash could leave stale.
type logFile struct {
	path string
	base int64 // OFFSET
}

func logPath(dir string, s Stream, base int64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%020d", s, base))
}

// logFiles lists the files of a stream, oldest first. The list is empty if the directory does not exist.
func logFiles(dir string, s Stream) ([]logFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var list []logFile
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), string(s)+".")
		if !ok || len(digits) != 20 {
			continue
		}
		if base, err := strconv.ParseInt(digits, 10, 64); err == nil {
			list = append(list, logFile{path: filepath.Join(dir, e.Name()), base: base})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].base < list[j].base })
	return list, nil
}

// logWriter appends to a stream, and deletes all but the newest LogPolicy.MaxFiles files of the stream. Only one
// goroutine may use it.
type logWriter struct {
	dir    string
	stream Stream
	policy LogPolicy
	file   *os.File
	base   int64
	size   int64

	clock  *logClock // shared by both streams
	marks  *os.File  // the marks of file; nil = the file of marks could not be opened
	marked int64     // time of the newest mark that this writer made for file; 0 = it has made no mark
}

// openLogWriter opens the newest file of a stream for appending, or makes the first file.
func openLogWriter(dir string, s Stream, p LogPolicy, clock *logClock) (*logWriter, error) {
	w := &logWriter{dir: dir, stream: s, policy: p, clock: clock}
	files, err := logFiles(dir, s)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		if err := w.create(0); err != nil {
			return nil, err
		}
		return w, nil
	}
	last := files[len(files)-1]
	w.file, err = os.OpenFile(last.path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := w.file.Stat()
	if err != nil {
		w.file.Close()
		return nil, err
	}
	w.base, w.size = last.base, st.Size()
	w.marks, _ = openMarks(last.path) // without marks the log still works
	return w, nil
}

func (w *logWriter) create(base int64) error {
	f, err := os.OpenFile(logPath(w.dir, w.stream, base), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	w.closeMarks()
	w.file, w.base, w.size, w.marked = f, base, 0, 0
	w.marks, _ = openMarks(f.Name()) // without marks the log still works
	return nil
}

func (w *logWriter) closeMarks() {
	if w.marks != nil {
		w.marks.Close()
	}
}

// Write appends b, and starts new files as needed. After an error it returns how many bytes it wrote.
func (w *logWriter) Write(b []byte) (int, error) {
	written, other := w.clock.begin(w.stream)
	defer w.clock.end()
	done := 0
	for done < len(b) {
		n, full := w.fit(b[done:])
		w.mark(written, other)
		m, err := w.file.Write(b[done : done+n])
		w.size += int64(m)
		done += m
		if err != nil {
			return done, err
		}
		if full {
			if err := w.rotate(); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// fit returns how many bytes of b go into the current file, and whether the file is full after them. If b is too large,
// the file ends after the last line end of b that fits or, if no line end fits, before b. A file that would then be
// less than half full is filled up instead.
func (w *logWriter) fit(b []byte) (int, bool) {
	room := max(0, w.policy.MaxBytes-w.size)
	if int64(len(b)) <= room {
		return len(b), false
	}
	if nl := bytes.LastIndexByte(b[:room], '\n') + 1; w.size+int64(nl) >= w.policy.MaxBytes/2 {
		return nl, true
	}
	return int(room), true
}

// rotate makes the next file before it closes the current one, so that the writer stays usable after an error. It also
// deletes the oldest files, so that at most MaxFiles are left.
func (w *logWriter) rotate() error {
	old := w.file
	if err := w.create(w.base + w.size); err != nil {
		return err
	}
	old.Close()
	files, err := logFiles(w.dir, w.stream)
	if err != nil {
		return err
	}
	for len(files) > w.policy.MaxFiles {
		if err := os.Remove(files[0].path); err != nil {
			return err
		}
		_ = os.Remove(files[0].path + marksSuffix) // there may be no file of marks
		files = files[1:]
	}
	return nil
}

func (w *logWriter) close() {
	w.file.Close()
	w.closeMarks()
}

// pumpLog copies from the program's pipe to w until no process has the other end of the pipe open, or until drain
// closes the pipe. Then it closes w. Bytes that can't be written, for example to a full disk, are lost, and the program
// continues. Once writes succeed again, a line in the log says how many bytes were lost.
func pumpLog(pipe io.Reader, w *logWriter) {
	defer w.close()
	buf := make([]byte, 16<<10)
	var lost int64
	for {
		n, err := pipe.Read(buf)
		if n > 0 && lost > 0 {
			if _, werr := fmt.Fprintf(w, "\n[outspan: %d bytes lost, the log could not be written]\n", lost); werr == nil {
				lost = 0
			}
		}
		if n > 0 {
			if m, werr := w.Write(buf[:n]); werr != nil {
				lost += int64(n - m)
			}
		}
		if err != nil {
			return
		}
	}
}
