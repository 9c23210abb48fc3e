package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// hole reports whether n bytes of f are all in a hole, and so read as zeros. The parameter at is the offset of the
// first byte. hole returns false if f has fewer bytes, or if the file system does not report holes.
func hole(f *os.File, at, n int64) bool {
	info, err := f.Stat()
	if err != nil || info.Size() < at+n {
		return false
	}
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO) || err == nil && next >= at+n
}

// skipping is a reader of a file. For holes, Read returns zeros without reading the disk.
type skipping struct {
	f         *os.File
	at        int64 // offset of the next byte to read
	dataBegin int64 // if greater than at, the bytes in between are a hole
}

// Read implements io.Reader.
func (s *skipping) Read(p []byte) (int, error) {
	if s.at >= s.dataBegin {
		s.dataBegin = s.nextData()
	}
	n := int(min(int64(len(p)), s.dataBegin-s.at))
	var err error
	if n > 0 {
		clear(p[:n])
	} else if n, err = s.f.ReadAt(p, s.at); n > 0 {
		err = nil
	}
	s.at += int64(n)
	return n, err
}

// skip skips n bytes and returns true if all of them are in a hole. Otherwise it skips nothing and returns false.
func (s *skipping) skip(n int64) bool {
	if s.at >= s.dataBegin {
		s.dataBegin = s.nextData()
	}
	if s.dataBegin-s.at < n {
		return false
	}
	s.at += n
	return true
}

// copyTo writes the next n bytes of the file to w, or fewer if the file ends, and returns how many it wrote. For holes
// it writes slices of zeroBytes, so that w can recognise them with ofZeroBytes.
func (s *skipping) copyTo(w io.Writer, n int64) (done int64, err error) {
	var buf []byte
	for done < n {
		piece := zeroBytes()[:min(n-done, chunkBytes)]
		if !s.skip(int64(len(piece))) {
			if buf == nil {
				buf = make([]byte, min(n-done, 256<<10))
			}
			got, err := s.Read(buf[:min(n-done, int64(len(buf)))])
			if errors.Is(err, io.EOF) {
				return done, nil
			}
			if err != nil {
				return done, err
			}
			piece = buf[:got]
		}
		if _, err := w.Write(piece); err != nil {
			return done, err
		}
		done += int64(len(piece))
	}
	return done, nil
}

// nextData returns the offset of the next data, or the end of the file if no data follows. If the file system does not
// report holes, it returns the current offset.
func (s *skipping) nextData() int64 {
	next, err := unix.Seek(int(s.f.Fd()), s.at, unix.SEEK_DATA)
	if err == nil {
		return next
	}
	if info, failed := s.f.Stat(); failed == nil && errors.Is(err, unix.ENXIO) {
		return max(s.at, info.Size())
	}
	return s.at
}

// zeroBytes returns a chunk of zeros, always the same one, which nobody may write to. ofZeroBytes recognises its slices
// without reading them, so each chunk of a large hole costs little.
var zeroBytes = sync.OnceValue(func() []byte { return make([]byte, chunkBytes) })

// ofZeroBytes reports whether b is a slice of zeroBytes. If so, the last byte of its capacity is the last byte of
// zeroBytes.
func ofZeroBytes(b []byte) bool {
	last := cap(b) - 1
	return last >= 0 && last < chunkBytes && &b[:last+1][last] == &zeroBytes()[chunkBytes-1]
}

// zeroChunk returns the SHA-256 of a whole chunk of zeros. It computes the sum only once.
var zeroChunk = sync.OnceValue(func() sum { return sha256.Sum256(make([]byte, chunkBytes)) })

func sumOf(chunk []byte) sum {
	if len(chunk) == chunkBytes && zero(chunk) {
		return zeroChunk()
	}
	return sha256.Sum256(chunk)
}

// sumText returns the sum of a chunk in hex. To save memory, all whole chunks of zeros share one string.
func sumText(chunk []byte) string {
	if len(chunk) == chunkBytes && zero(chunk) {
		return zeroText()
	}
	sum := sumOf(chunk)
	return hex.EncodeToString(sum[:])
}

var zeroText = sync.OnceValue(func() string {
	sum := zeroChunk()
	return hex.EncodeToString(sum[:])
})

func zero(b []byte) bool {
	if ofZeroBytes(b) {
		return true
	}
	none := [4096]byte{}
	for len(b) > 0 {
		n := min(len(b), len(none))
		if !bytes.Equal(b[:n], none[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// chunked is a writer that cuts its data into chunks and passes each chunk to take. The last chunk, which may be
// shorter, is passed by close. take must not keep the slice, which is used again.
type chunked struct {
	zeros int // number of buffered bytes if all of them are from zeroBytes; buf is empty while zeros > 0
	buf   []byte
	take  func(chunk []byte) error
}

// Write implements io.Writer.
func (c *chunked) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest[:min(len(rest), chunkBytes-len(c.buf)-c.zeros)]
		rest = rest[len(part):]
		if ofZeroBytes(part) && len(c.buf) == 0 {
			c.zeros += len(part)
		} else {
			c.buf = append(append(c.buf, zeroBytes()[:c.zeros]...), part...)
			c.zeros = 0
		}
		if len(c.buf)+c.zeros == chunkBytes {
			if err := c.close(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (c *chunked) close() error {
	chunk := c.buf
	if len(chunk) == 0 {
		chunk = zeroBytes()[:c.zeros]
	}
	if len(chunk) == 0 {
		return nil
	}
	c.buf, c.zeros = c.buf[:0], 0
	return c.take(chunk)
}

// sparse writes chunks one after another to f, a new file. Chunks of zeros become holes. close does not close f. It
// only sets the length of f, which may end with a hole.
type sparse struct {
	f *os.File
	n int64
}

func (s *sparse) write(chunk []byte) error {
	at := s.n
	s.n += int64(len(chunk))
	if zero(chunk) {
		return nil
	}
	_, err := s.f.WriteAt(chunk, at)
	return err
}

func (s *sparse) close() error { return s.f.Truncate(s.n) }

// fileSum is a checksum over the sums of a file's chunks. Unlike a checksum over the bytes, it takes little time for
// large holes.
type fileSum struct{ of hash.Hash }

func newFileSum() fileSum { return fileSum{sha256.New()} }

func (s fileSum) add(chunk []byte) {
	one := sumOf(chunk)
	s.of.Write(one[:])
}
