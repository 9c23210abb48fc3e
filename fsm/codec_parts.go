package fsm

import (
	"bufio"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/outspan/outspan/model"
)

const (
	partSize = 64 << 10 // bytes of each part that this program writes, except for the last part
	maxPart  = 1 << 20  // most bytes of a part that this program reads
	partHead = 4 + 4
)

// packParts compresses what fill writes, and writes the result to w in parts. Compression runs in its own goroutine,
// which has exited when packParts returns.
func packParts(w io.Writer, fill func(io.Writer) error) error {
	from, to := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packAll(w, from)
		_ = from.CloseWithError(err) // closes the pipe even if err is nil; later writes of fill fail
		packed <- err
	}()
	out := bufio.NewWriterSize(to, 4*partSize)
	err := fill(out)
	if err == nil {
		err = out.Flush()
	}
	_ = to.CloseWithError(err) // a nil error means the end of the stream
	if failed := <-packed; failed != nil {
		return failed // if fill failed too, its error follows from failed or is the same
	}
	return err
}

func packAll(w io.Writer, r io.Reader) error {
	parts := partWriter{w: w}
	deflate, err := flate.NewWriter(&parts, flate.BestSpeed)
	if err == nil {
		_, err = io.CopyBuffer(deflate, r, make([]byte, 4*partSize))
	}
	if err == nil {
		err = deflate.Close()
	}
	if err == nil {
		err = parts.flush()
	}
	return err
}

// partWriter writes parts of partSize bytes. The last part, which flush writes, may be smaller.
type partWriter struct {
	w    io.Writer
	part []byte
}

// Write implements io.Writer.
func (p *partWriter) Write(b []byte) (int, error) {
	if p.part == nil {
		p.part = make([]byte, partHead, partHead+partSize)
	}
	for rest := b; len(rest) > 0; {
		n := min(len(rest), cap(p.part)-len(p.part))
		p.part, rest = append(p.part, rest[:n]...), rest[n:]
		if len(p.part) == cap(p.part) {
			if err := p.flush(); err != nil {
				return len(b) - len(rest), err
			}
		}
	}
	return len(b), nil
}

func (p *partWriter) flush() error {
	if len(p.part) <= partHead {
		return nil
	}
	binary.BigEndian.PutUint32(p.part, uint32(len(p.part)-partHead))
	binary.BigEndian.PutUint32(p.part[4:], partSum(p.part[:4], p.part[partHead:]))
	if _, err := p.w.Write(p.part); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	p.part = p.part[:partHead]
	return nil
}

func partSum(length, part []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, part)
}

// partReader returns the bytes of the parts. It verifies the checksum of a part before it returns any byte of the part.
// It returns io.EOF if r ends right after a part.
type partReader struct {
	r    io.Reader
	read int64 // bytes taken from r
	part []byte
	rest []byte // the bytes of part that Read has not returned yet
}

// prelude reads and checks the prelude of a snapshot, and returns its format.
func (p *partReader) prelude() (uint16, error) {
	var head [preludeSize]byte
	if err := p.fill(head[:]); err != nil {
		return 0, err
	}
	magic, rest := string(head[:len(snapshotMagic)]), head[len(snapshotMagic):]
	if magic != snapshotMagic {
		return 0, model.Refuse(model.CodeInvalid, "this is no outspan snapshot").
			WithHint("give a file that was written by: outspan server snapshot save")
	}
	if crc32.Checksum(head[:preludeSize-4], castagnoli) != binary.BigEndian.Uint32(rest[2:]) {
		return 0, damaged("its head does not match its checksum")
	}
	format := binary.BigEndian.Uint16(rest)
	if format > model.CurrentFormat {
		return 0, needsFormat("the snapshot", format)
	}
	return format, nil
}

// Read implements io.Reader.
func (p *partReader) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		if err := p.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *partReader) next() error {
	var head [partHead]byte
	n, err := io.ReadFull(p.r, head[:])
	p.read += int64(n)
	if errors.Is(err, io.EOF) && n == 0 {
		return io.EOF
	} else if err != nil {
		return readError(err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || size > maxPart {
		return damaged("it has a part of %d bytes, at most %d are possible", size, maxPart)
	}
	if int(size) > cap(p.part) {
		p.part = make([]byte, size)
	}
	p.part = p.part[:size]
	if err := p.fill(p.part); err != nil {
		return err
	}
	if partSum(head[:4], p.part) != binary.BigEndian.Uint32(head[4:]) {
		return damaged("what stands at byte %d does not match its checksum", p.read-int64(size))
	}
	p.rest = p.part
	return nil
}

func (p *partReader) fill(b []byte) error {
	n, err := io.ReadFull(p.r, b)
	p.read += int64(n)
	return readError(err)
}

// readError turns the error of a reader into the error that ReadSnapshot returns. It returns nil if err is nil.
func readError(err error) error {
	if err == nil {
		return nil
	}
	var known *model.Error
	var corrupt flate.CorruptInputError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it ends too early")
	case errors.As(err, &corrupt):
		return damaged("what it holds can't be unpacked: %v", err)
	}
	return fmt.Errorf("read snapshot: %w", err)
}
