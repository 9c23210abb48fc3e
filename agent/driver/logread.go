package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// followInterval is how often a following reader looks for new bytes. It bounds the delay of `logs -f`.
const followInterval = 100 * time.Millisecond

// LogReader reads one stream of an instance from all files of the stream. Only one goroutine at a time may call Read;
// another may call Close.
type LogReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	dir    string
	stream Stream
	follow bool
	ended  <-chan struct{} // closed when no more bytes will be written
	mu     sync.Mutex      // guards the fields below; not held while Read waits
	file   *os.File
	base   int64 // position in the stream of the first byte of file
	offset int64 // position in the stream of the next byte to read
	marks  logMarks
}

// OpenLog opens a stream for reading, even after the instance has ended, until Remove. offset is in bytes from the
// beginning of the stream or, if it is negative, from the present end. If the bytes at offset were rotated away,
// reading starts at the oldest byte that is left, as LogReader.Offset shows. Codes: CodeInvalidSpec (unknown stream),
// CodeStateFailed.
//
// At the end of the stream Read returns io.EOF. If follow is true, Read waits for more bytes instead, and returns
// io.EOF once the instance has ended. After ctx has ended, Read returns the error of ctx.
func (t *Task) OpenLog(ctx context.Context, s Stream, offset int64, follow bool) (*LogReader, error) {
	if !s.Valid() {
		return nil, model.Refuse(CodeInvalidSpec, "log stream %q does not exist", s).WithHint("use stdout or stderr")
	}
	r := &LogReader{dir: t.launch.LogDir, stream: s, follow: follow, ended: t.done}
	if err := r.seek(offset); err != nil {
		return nil, model.Refuse(CodeStateFailed, "open %s of instance %s: %v", s, t.ID(), err)
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r, nil
}

// seek sets r.offset. It resolves a negative offset, and skips bytes that were rotated away. It opens no file; the
// first Read does.
func (r *LogReader) seek(offset int64) error {
	r.offset = offset
	files, err := logFiles(r.dir, r.stream)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		r.offset = max(0, offset)
		return nil
	}
	if offset < 0 {
		last := files[len(files)-1]
		st, err := os.Stat(last.path)
		if err != nil {
			return err
		}
		r.offset = max(0, last.base+st.Size()+offset)
	}
	r.offset = max(r.offset, files[0].base)
	return nil
}

// Offset returns the position in the stream at which the next Read starts. That Read starts later if the bytes at the
// position are rotated away first.
func (r *LogReader) Offset() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offset
}

// Close closes the files. A waiting Read and later ones return context.Canceled.
func (r *LogReader) Close() error {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closeFile()
	r.marks.close()
	return nil
}

// Read implements io.Reader.
func (r *LogReader) Read(b []byte) (int, error) {
	for len(b) > 0 {
		ended := !r.follow || closed(r.ended) // checked before the read, so that the last bytes are not missed
		n, more, err := r.step(b)
		if n > 0 || err != nil {
			return n, err
		}
		if more {
			continue
		}
		if ended {
			return 0, io.EOF
		}
		r.wait()
	}
	return 0, nil
}

// step reads from the open file. At the end of the file it opens the next one. If more is true, the caller calls step
// again at once.
func (r *LogReader) step(b []byte) (n int, more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ctx.Err(); err != nil {
		r.closeFile()
		return 0, false, err
	}
	if n, err = r.readOnce(b); n > 0 || err != nil {
		return n, false, err
	}
	more, err = r.next()
	return 0, more, err
}

// readOnce reads from the open file at r.offset. It returns 0 and no error at the end of the file, or if no file is
// open.
func (r *LogReader) readOnce(b []byte) (int, error) {
	if r.file == nil {
		return 0, nil
	}
	n, err := r.file.ReadAt(b, r.offset-r.base)
	r.offset += int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// next opens the file that contains the byte at r.offset, or the oldest file if that byte was rotated away. It returns
// true if step should be called again, and false if the file is open already or the stream has no file.
func (r *LogReader) next() (bool, error) {
	files, err := logFiles(r.dir, r.stream)
	if err != nil {
		return false, err
	}
	for i := len(files) - 1; i >= 0; i-- {
		f := files[i]
		if f.base > r.offset && i > 0 {
			continue
		}
		if r.file != nil && f.base <= r.base {
			return false, nil
		}
		return r.open(f)
	}
	return false, nil
}

func (r *LogReader) open(f logFile) (bool, error) {
	if r.file != nil && f.base > r.offset {
		// The bytes from offset up to f were rotated away. The open file may still have some of them, so it is read to its
		// end first.
		if st, err := r.file.Stat(); err != nil || r.base+st.Size() > r.offset {
			return err == nil, err
		}
	}
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil // the file was rotated away meanwhile, so next must list the files again
	}
	if err != nil {
		return false, fmt.Errorf("open log: %w", err)
	}
	r.closeFile()
	r.file, r.base, r.offset = file, f.base, max(r.offset, f.base)
	return true, nil
}

func (r *LogReader) closeFile() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

func (r *LogReader) wait() {
	timer := time.NewTimer(followInterval)
	defer timer.Stop()
	select {
	case <-r.ctx.Done():
	case <-r.ended:
	case <-timer.C:
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
