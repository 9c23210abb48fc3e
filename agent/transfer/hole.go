package transfer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// hole reports whether n bytes of a file from at on take no room on the disk: they read as zeros, and need not be read. Where the file system can't tell, none are.
func hole(f *os.File, at, n int64) bool {
	info, err := f.Stat()
	if err != nil || info.Size() < at+n {
		return false
	}
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	return errors.Is(err, unix.ENXIO) || err == nil && next >= at+n
}

// skipping reads a file from its beginning, and does not have the disk read its holes.
type skipping struct {
	f         *os.File
	at        int64
	dataBegin int64 // nothing but a hole is between at and here
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

// nextData is where data follows, or the file ends; where the file system can't tell, right here.
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

// zeroChunk is the sum of a whole chunk of zeros.
var zeroChunk = sync.OnceValue(func() sum { return sha256.Sum256(make([]byte, chunkBytes)) })

// sumOf is the SHA-256 of a chunk.
func sumOf(chunk []byte) sum {
	if len(chunk) == chunkBytes && zero(chunk) {
		return zeroChunk()
	}
	return sha256.Sum256(chunk)
}

func zero(b []byte) bool {
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

// chunked gathers what is written to it and hands on whole chunks; close hands on the rest. Each chunk is handed on once.
type chunked struct {
	buf  []byte
	take func(chunk []byte) error
}

// Write implements io.Writer.
func (c *chunked) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest[:min(len(rest), chunkBytes-len(c.buf))]
		c.buf, rest = append(c.buf, part...), rest[len(part):]
		if len(c.buf) == chunkBytes {
			if err := c.close(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (c *chunked) close() error {
	if len(c.buf) == 0 {
		return nil
	}
	chunk := c.buf
	c.buf = c.buf[:0]
	return c.take(chunk)
}

// sparse writes chunks one after another to a new file. Those of zeros become holes; close gives the file its length.
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

// fileSum sums a file by the sums of its chunks, so that a hole of any size is summed at once.
type fileSum struct{ of hash.Hash }

func newFileSum() fileSum { return fileSum{sha256.New()} }

func (s fileSum) add(chunk []byte) {
	one := sumOf(chunk)
	s.of.Write(one[:])
}
