package transfer

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"sort"

	"github.com/outspan/outspan/fsm"
)

// chunkBytes is how much is sent, summed and written at once.
const chunkBytes = 4 << 20

type sum = [sha256.Size]byte

// content is the contents of a tree as one row of bytes.
type content struct {
	root  *os.Root
	files []*entry
	ends  []int64 // of each file in the row
}

func newContent(root *os.Root, entries []entry) *content {
	c := &content{root: root}
	total := int64(0)
	for i := range entries {
		if e := &entries[i]; e.regular() && e.Size > 0 {
			total += e.Size
			c.files, c.ends = append(c.files, e), append(c.ends, total)
		}
	}
	return c
}

func (c *content) total() int64 {
	if len(c.ends) == 0 {
		return 0
	}
	return c.ends[len(c.ends)-1]
}

func (c *content) chunks() int { return int((c.total() + chunkBytes - 1) / chunkBytes) }

// length of a chunk: all have chunkBytes but the last.
func (c *content) length(i int) int64 { return min(chunkBytes, c.total()-int64(i)*chunkBytes) }

// each visits the pieces of files that a chunk consists of.
func (c *content) each(i int, visit func(e *entry, at, n int64) error) error {
	from := int64(i) * chunkBytes
	left := c.length(i)
	for f := sort.Search(len(c.ends), func(f int) bool { return c.ends[f] > from }); left > 0; f++ {
		e := c.files[f]
		at := from - (c.ends[f] - e.Size)
		n := min(left, e.Size-at)
		if err := visit(e, at, n); err != nil {
			return err
		}
		from, left = from+n, left-n
	}
	return nil
}

// read fills buf with a chunk. A file that has become shorter is an error.
func (c *content) read(i int, buf []byte) ([]byte, error) {
	buf = buf[:0]
	err := c.each(i, func(e *entry, at, n int64) error {
		f, err := openRegular(c.root, e.Path)
		if err != nil {
			return err
		}
		piece := buf[len(buf) : len(buf)+int(n)]
		_, err = f.ReadAt(piece, at)
		buf = buf[:len(buf)+int(n)]
		if errors.Is(err, io.EOF) {
			err = fsm.Refuse(fsm.CodeIntegrity, "%s became shorter while it was read", e.Path)
		}
		return errors.Join(err, f.Close())
	})
	return buf, asCode(err, "read the volume")
}

// write puts a chunk where it belongs. Pieces that are all zero stay holes.
func (c *content) write(i int, data []byte) error {
	err := c.each(i, func(e *entry, at, n int64) error {
		piece := data[:n]
		data = data[n:]
		f, err := c.root.OpenFile(e.Path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if zero(piece) {
			err = punch(f, at, n)
		} else {
			_, err = f.WriteAt(piece, at)
		}
		return errors.Join(err, f.Close())
	})
	return asCode(err, "write the copy")
}

// punch leaves a hole, unless something was written there before.
func punch(f *os.File, at, n int64) error {
	if hole(f, at, n) {
		return nil
	}
	old := make([]byte, n)
	if _, err := f.ReadAt(old, at); err != nil || zero(old) {
		return err
	}
	clear(old)
	_, err := f.WriteAt(old, at)
	return err
}

// clear makes a chunk zeros.
func (c *content) clear(i int) error {
	err := c.each(i, func(e *entry, at, n int64) error {
		f, err := c.root.OpenFile(e.Path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(punch(f, at, n), f.Close())
	})
	return asCode(err, "write the copy")
}

// hole reports whether no byte of a chunk is on the disk: all are zeros.
func (c *content) hole(i int) bool {
	return c.each(i, func(e *entry, at, n int64) error {
		f, err := openRegular(c.root, e.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		if !hole(f, at, n) {
			return errNoHole
		}
		return nil
	}) == nil
}

var errNoHole = errors.New("there is data")

func (c *content) sum(i int, buf []byte) (sum, error) {
	if c.length(i) == chunkBytes && c.hole(i) {
		return zeroChunk(), nil
	}
	data, err := c.read(i, buf)
	return sumOf(data), err
}
