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

// followInterval is how often a following reader looks for more. It bounds the delay of `logs -f`.
const followInterval = 100 * time.Millisecond

// LogReader reads one stream across its files. Read is for one goroutine at a time; Close may come from another.
type LogReader struct {
	ctx    context.Context
	cancel context.CancelFunc
	dir    string
	stream Stream
	follow bool
	ended  <-chan struct{} // closed when nothing more will be written
	mu     sync.Mutex      // guards what follows; not held while waiting
	file   *os.File
	base   int64 // position of file's first byte in the stream
	offset int64 // of the next byte, in the stream
	marks  logMarks
}

// OpenLog opens a stream for reading at offset, counted in bytes from the beginning of the stream; a negative offset
// counts from its present end. If that part was rotated away, reading starts at the oldest byte left: compare with
// Offset. Read returns io.EOF at the end of the stream. With follow it blocks there until the instance has ended; if
// ctx ends first, it returns the error of ctx. OpenLog works on ended instances until Remove.
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

// seek resolves a negative offset; the file itself is opened by the first Read.
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

// Offset returns the position in the stream of the byte that the next Read returns first.
func (r *LogReader) Offset() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.offset
}

// Close frees the reader and ends a blocked Read. Later Reads return context.Canceled.
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
		ended := !r.follow || closed(r.ended) // asked before reading, so that the last lines are read too
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

// step reads from the present file or moves on to the next one; more means that it should be called again.
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

// readOnce reads what the present file has at offset; 0 and no error at its end.
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

// next opens the file that holds offset. It returns false if that is the present file, or there is none.
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
		// Bytes may be skipped only if the present file did not grow since it was read.
		if st, err := r.file.Stat(); err != nil || r.base+st.Size() > r.offset {
			return err == nil, err
		}
	}
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil // rotated away since it was listed: list again
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
