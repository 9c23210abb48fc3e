package transfer

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"sort"

	"github.com/outspan/outspan/model"
)

// chunkBytes is how many bytes are sent, summed and written at once.
const chunkBytes = 4 << 20

type sum = [sha256.Size]byte

// content presents all regular files of a tree as one stream of bytes.
type content struct {
	root  *os.Root
	files []*entry
	ends  []int64 // where each file ends in the stream
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

// length returns the length of chunk i: chunkBytes, or less for the last chunk.
func (c *content) length(i int) int64 { return min(chunkBytes, c.total()-int64(i)*chunkBytes) }

// each calls visit for each piece of a file that is in chunk i. A piece has n bytes, and begins at offset at of e.
func (c *content) each(i int, visit func(e *entry, at, n int64) error) error {
	return c.pieces(int64(i)*chunkBytes, c.length(i), visit)
}

// pieces is like each, but for the part of the stream that begins at offset from and has left bytes.
func (c *content) pieces(from, left int64, visit func(e *entry, at, n int64) error) error {
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

// read returns chunk i in buf. It returns an error if a file has become shorter.
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
			err = model.Refuse(model.CodeIntegrity, "%s became shorter while it was read", e.Path)
		}
		return errors.Join(err, f.Close())
	})
	return buf, asCode(err, "read the volume")
}

// write writes data as chunk i into the files. It does not write zeros where a file has zeros or a hole already.
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

// punch makes n bytes of a file, from offset at on, read as zeros. It writes only if other data is there, so that holes
// stay holes.
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

// clear makes n chunks, from chunk i on, read as zeros. From time to time it calls ended, and stops if ended returns an
// error.
func (c *content) clear(i, n int, ended func() error) error {
	err := c.pieces(int64(i)*chunkBytes, int64(n)*chunkBytes, func(e *entry, at, n int64) error {
		f, err := c.root.OpenFile(e.Path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if !hole(f, at, n) {
			for end := at + n; at < end && err == nil; at += chunkBytes {
				err = errors.Join(punch(f, at, min(chunkBytes, end-at)), ended())
			}
		}
		return errors.Join(err, f.Close())
	})
	return asCode(err, "write the copy")
}

// holeChunks is the largest number of chunks that are checked for a hole at once: 1 TiB.
const holeChunks = 1 << 18

// holes returns how many whole chunks, from chunk i on, have no data on the disk and so are zeros. It looks at most at
// holeChunks chunks.
func (c *content) holes(i int) int {
	from := int64(i) * chunkBytes
	end := from
	err := c.pieces(from, min(holeChunks*chunkBytes, c.total()-from), func(e *entry, at, n int64) error {
		f, err := openRegular(c.root, e.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		s := skipping{f: f, at: at}
		if info, err := f.Stat(); err != nil || info.Size() < at+n {
			return errNoHole
		}
		empty := min(s.nextData()-at, n)
		if end += empty; empty < n {
			return errNoHole
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNoHole) {
		return 0 // reading the chunk will return the error
	}
	return int((end - from) / chunkBytes)
}

var errNoHole = errors.New("there is data")

// reading computes the sums of a stream's chunks, one after another. It looks up the length of a hole only once.
type reading struct {
	*content
	next  int // number of the next chunk
	holes int // chunks from next on that are known to be holes
	buf   []byte
}

func (c *content) reading() *reading { return &reading{content: c, buf: make([]byte, chunkBytes)} }

// sum returns the sum of the next chunk.
func (r *reading) sum() (sum, error) {
	if r.holes == 0 {
		r.holes = r.content.holes(r.next)
	}
	r.next++
	if r.holes > 0 {
		r.holes--
		return zeroChunk(), nil
	}
	data, err := r.read(r.next-1, r.buf)
	return sumOf(data), err
}
