package transfer

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"

	"github.com/outspan/outspan/model"
)

const (
	// maxList limits the memory of one slot's list of files, in bytes. It is enough for about 1.2 million files with paths
	// of 60 bytes. An encoded list, which is smaller, has the same limit.
	maxList = 256 << 20
	// maxArchiveList limits the memory of the list of files when a backup is restored. It is higher than maxList because
	// the backup may be all that is left of the data.
	maxArchiveList = 1 << 30
	// entryCost is how many bytes of memory an entry takes besides its strings: the entry itself, and its places in
	// content.files, content.ends and entryCheck.dirs.
	entryCost = 160
	// maxFrame limits the encoded bytes of one entry.
	maxFrame = 64 << 10
)

// manifest lists the files of a slot that a transfer copies. The contents of its regular files form one stream, which
// is cut into chunks.
type manifest struct {
	Names   []string
	Entries []entry
	Chunk   int64 // bytes of each chunk but the last
	OwnUID  int   // user id of the slot's instances at the source; see userOf
}

// manifestHead is sent before the entries.
type manifestHead struct {
	Names []string `cbor:"1,keyasint"`
	Chunk int64    `cbor:"2,keyasint"`
	Count int      `cbor:"3,keyasint"` // number of entries
	Own   int      `cbor:"4,keyasint,omitempty"`
}

func newManifest(root *os.Root, names []string) (manifest, error) {
	entries, err := scan(root, names, false)
	return manifest{Names: names, Entries: entries, Chunk: chunkBytes}, err
}

// write writes the head and each entry in a frame of its own. So neither side needs memory for the whole encoded list.
func (m *manifest) write(to io.Writer) error {
	w := bufio.NewWriterSize(to, maxFrame)
	if err := writeFrame(w,
		manifestHead{Names: m.Names, Chunk: m.Chunk, Count: len(m.Entries), Own: m.OwnUID}); err != nil {
		return err
	}
	for i := range m.Entries {
		if err := writeFrame(w, &m.Entries[i]); err != nil {
			return err
		}
	}
	return w.Flush()
}

func writeFrame(w io.Writer, item any) error {
	b, err := cbor.Marshal(item)
	if err == nil && len(b) > maxFrame {
		err = model.Refuse(model.CodeInvalid, "a file has a path and a link of more than %d bytes", maxFrame)
	}
	if err == nil {
		_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	return err
}

// readManifest reads what write wrote, perhaps on another agent. It checks each entry as it reads it (see
// entryCheck.add), and refuses lists that take more than room bytes of memory. Codes: integrity_check_failed, invalid
// (too many files).
func readManifest(from io.Reader, names []string, room listRoom) (manifest, error) {
	r := frames{from: bufio.NewReaderSize(from, maxFrame)}
	var head manifestHead
	if err := r.next(&head); err != nil || head.Chunk != chunkBytes || head.Count < 0 || head.Count > int(room)/entryCost {
		return manifest{}, model.Refuse(model.CodeIntegrity, "the list of files can't be read: %v", err)
	}
	m := manifest{Names: head.Names, Chunk: head.Chunk, OwnUID: head.Own}
	check := newEntryCheck(names, room)
	for range head.Count {
		var e entry
		if err := r.next(&e); err != nil {
			return m, model.Refuse(model.CodeIntegrity, "the list of files can't be read: %v", err)
		}
		if err := check.add(&e); err != nil {
			return m, err
		}
		m.Entries = append(m.Entries, e)
	}
	if _, err := r.from.ReadByte(); err != io.EOF {
		return m, model.Refuse(model.CodeIntegrity, "the list of files has more than its %d entries", head.Count)
	}
	return m, check.end()
}

// frames reads what writeFrame wrote.
type frames struct {
	from *bufio.Reader
	buf  []byte
}

func (f *frames) next(item any) error {
	var length [4]byte
	if _, err := io.ReadFull(f.from, length[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxFrame {
		return model.Refuse(model.CodeIntegrity, "an entry has %d bytes", n)
	}
	f.buf = slices.Grow(f.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(f.from, f.buf); err != nil {
		return err
	}
	return cbor.Unmarshal(f.buf, item)
}

type entryCheck struct {
	names []string
	dirs  map[string]struct{}
	last  string
	left  int64 // bytes of content that may still follow
	room  listRoom
}

// listRoom is how many bytes of memory a list may still take.
type listRoom int64

// take subtracts the memory that an entry takes. Code: invalid (the list takes too much memory).
func (r *listRoom) take(e *entry) error {
	if *r -= listRoom(entryCost + len(e.Path) + len(e.Link)); *r < 0 {
		return model.Refuse(model.CodeInvalid, "the volumes have too many files: their list takes too much memory")
	}
	return nil
}

func newEntryCheck(names []string, room listRoom) *entryCheck {
	return &entryCheck{names: names, dirs: map[string]struct{}{".": {}}, left: maxTreeBytes, room: room}
}

// add refuses an entry whose path leads out of the volumes, comes before the path of its directory, is out of order, or
// is listed twice. It also refuses impossible sizes, unknown types, and lists that are too large. A list comes from
// another node or a backup, so it is not trusted.
func (c *entryCheck) add(e *entry) error {
	if err := c.room.take(e); err != nil {
		return err
	}
	first, _, _ := cutPath(e.Path)
	_, below := c.dirs[path.Dir(e.Path)]
	switch {
	case !filepath.IsLocal(e.Path) || path.Clean(e.Path) != e.Path || strings.Contains(e.Path, "\x00") ||
		!slices.Contains(c.names, first),
		e.Path <= c.last, !below, e.Size < 0, e.Size > c.left, e.Used < 0, e.Used > e.Size:
		return model.Refuse(model.CodeIntegrity, "the list of files has the impossible entry %q", e.Path)
	case e.mode().IsDir():
		c.dirs[e.Path] = struct{}{}
	case e.mode().Type() != 0 && e.mode().Type() != os.ModeSymlink:
		return model.Refuse(model.CodeIntegrity, "the list of files has %q of an unknown type", e.Path)
	}
	c.last, c.left = e.Path, c.left-e.Size
	return nil
}

func (c *entryCheck) end() error {
	for _, name := range c.names {
		if _, ok := c.dirs[name]; !ok {
			return model.Refuse(model.CodeIntegrity, "the list of files lacks the volume %s", name)
		}
	}
	return nil
}
