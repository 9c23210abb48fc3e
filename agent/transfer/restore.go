package transfer

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// restore unpacks a backup into a staging directory, and then verifies what is on the disk. If a verified copy exists
// already, restore only reports it. After an interruption, the next try begins with an empty directory.
func (t *task) restore(ctx context.Context) error {
	if sum, ok := t.verified(); ok {
		total := t.stagedBytes()
		t.report(model.SideVerified, total, total, sum)
		return nil
	}
	if err := t.checkUser(); err != nil {
		return err
	}
	dir, err := t.archiveDir(t.Backup)
	if err != nil {
		return err
	}
	a, err := readArchive(dir, t.Backup, t.Sum)
	if err != nil {
		return err
	}
	if err := t.beginStaging(nil, min(a.DiskBytes, a.Bytes)); err != nil {
		return err
	}
	root, err := os.OpenRoot(t.staging(t.ID, "tree"))
	if err != nil {
		return asCode(err, "open the copy")
	}
	defer func() { _ = root.Close() }() // a directory handle; the files are synced separately
	u := &unpacking{t: t, root: root, a: &a}
	if err := u.unpack(ctx, filepath.Join(dir, archiveData)); err != nil {
		return asCode(err, "read the backup")
	}
	t.report(model.SideVerifying, 0, a.Bytes, "")
	if err := u.verify(ctx); err != nil {
		return err
	}
	m := manifest{Names: t.Names, Entries: u.entries, Chunk: chunkBytes, OwnUID: a.OwnUID}
	if err := durable.Replace(t.staging(t.ID, "manifest"), m.write, 0o600); err != nil {
		return asCode(err, "note what was restored")
	}
	return t.finish(root, &m, bytes.Join(u.sums, nil))
}

// unpacking is an archive that is being unpacked into a tree.
type unpacking struct {
	t       *task
	root    *os.Root
	a       *archive
	in      *checking
	buf     []byte
	check   *entryCheck
	entries []entry
	sums    [][]byte // sum of each entry's file (see fileSum); nil for directories and links
}

// unpack creates all entries of the archive in the tree. It stops at the first chunk with a wrong sum, and uses no byte
// of that chunk.
func (u *unpacking) unpack(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	u.buf = make([]byte, chunkBytes)
	u.in = &checking{from: &skipping{f: f}, a: u.a, each: func(done int64) error {
		u.t.progress(model.SideCopying, done, u.a.Bytes)
		return errors.Join(u.t.settle(u.in.data), ctx.Err())
	}}
	u.check = newEntryCheck(u.t.Names, maxArchiveList)
	r := tar.NewReader(u.in)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.add(h, r)
		}
		if err != nil {
			return err
		}
	}
	if err := u.in.rest(); err != nil { // reads the padding after the last entry, to check its sums too
		return err
	}
	return u.check.end()
}

// add creates the file, directory or link of one entry. It refuses entries of unknown types, and entries that
// entryCheck.add refuses.
func (u *unpacking) add(h *tar.Header, content io.Reader) error {
	e := entry{
		Path: strings.TrimSuffix(h.Name, "/"), Mode: uint32(fromTar(h.Mode)), UID: h.Uid, GID: h.Gid,
		Mtime: h.ModTime.UnixNano(), Size: h.Size, Link: h.Linkname,
	}
	switch h.Typeflag {
	case tar.TypeDir:
		e.Mode, e.Size = e.Mode|uint32(fs.ModeDir), 0
	case tar.TypeSymlink:
		e.Mode, e.Size = e.Mode|uint32(fs.ModeSymlink), 0
	case tar.TypeReg:
		e.Link = ""
	default:
		return model.Refuse(model.CodeIntegrity, "the backup has %q of an unknown type", e.Path)
	}
	if err := u.check.add(&e); err != nil {
		return err
	}
	sum := []byte(nil)
	var err error
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.root.Mkdir(e.Path, 0o700)
	case tar.TypeSymlink:
		err = u.root.Symlink(e.Link, e.Path)
	default:
		sum, err = u.write(&e, content)
	}
	u.entries, u.sums = append(u.entries, e), append(u.sums, sum)
	return err
}

func (u *unpacking) write(e *entry, content io.Reader) ([]byte, error) {
	f, err := u.root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	file, sum := sparse{f: f}, newFileSum()
	out := &chunked{take: func(chunk []byte) error {
		sum.add(chunk)
		return file.write(chunk)
	}}
	for err == nil {
		var piece []byte
		piece, err = u.in.lendZeros(content, u.buf)
		_, failed := out.Write(piece)
		err = cmp.Or(failed, err)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	err = errors.Join(err, out.close(), file.close(), f.Close())
	return sum.of.Sum(nil), err
}

// verify reads every file back from the disk and compares its sum with that of the written content.
func (u *unpacking) verify(ctx context.Context) error {
	done := int64(0)
	for i, want := range u.sums {
		if want == nil {
			continue
		}
		sum := newFileSum()
		in := &chunked{take: func(chunk []byte) error {
			sum.add(chunk)
			done += int64(len(chunk))
			u.t.progress(model.SideVerifying, min(done, u.a.Bytes), u.a.Bytes)
			return ctx.Err()
		}}
		f, err := u.root.Open(u.entries[i].Path)
		if err == nil {
			_, err = (&skipping{f: f}).copyTo(in, math.MaxInt64)
			err = errors.Join(err, in.close(), f.Close(), ctx.Err())
		}
		if err != nil {
			return asCode(err, "read the copy back")
		}
		if !bytes.Equal(sum.of.Sum(nil), want) {
			return model.Refuse(model.CodeIntegrity, "%s is not on the disk as it was written", u.entries[i].Path)
		}
	}
	return nil
}
