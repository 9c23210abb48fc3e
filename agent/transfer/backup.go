package transfer

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
)

// archiveDir returns the directory of one backup. Code: not_supported (this node has no backup directory).
func (t *task) archiveDir(id model.BackupID) (string, error) {
	if t.m.cfg.BackupDir == "" {
		return "", model.Refuse(model.CodeNotSupported, "this node has no backup directory").
			WithHint("set backup_dir in the agent block of its file")
	}
	return filepath.Join(t.m.cfg.BackupDir, string(id)), nil
}

// backup writes the volumes to an archive, reads the archive back, and then gives the archive its final name. If the
// archive exists already, backup only reports it. After an interruption, backup starts from the beginning.
func (t *task) backup(ctx context.Context) error {
	dir, err := t.archiveDir(model.BackupID(t.ID))
	if err != nil {
		return err
	}
	if _, err := readArchive(dir, model.BackupID(t.ID), ""); err == nil {
		return t.backupDone(dir)
	}
	if err := t.mustBeHere(); err != nil {
		return err
	}
	partial := dir + ".partial"
	if err := errors.Join(erase.Tree(partial), os.MkdirAll(partial, 0o700)); err != nil {
		return asCode(err, "make a place for the backup")
	}
	a := archive{
		Format: archiveFormat, ID: model.BackupID(t.ID), Group: t.Group, Slot: t.Slot, Volumes: t.Names, Live: t.Live,
		CreatedMS: t.Wall, ChunkBytes: chunkBytes,
	}
	if err = t.writeData(ctx, partial, &a); err == nil {
		_, err = a.write(partial)
	}
	if err == nil {
		t.report(model.SideVerifying, 0, a.Bytes, "")
		err = checkData(partial, &a, func(done int64) error {
			t.progress(model.SideVerifying, done, a.Bytes)
			return ctx.Err()
		})
	}
	if err == nil {
		err = move(partial, dir)
	}
	if err != nil {
		_ = erase.Tree(partial) // if this fails, the next try removes what is left
		return asCode(err, "write the backup")
	}
	return t.backupDone(dir)
}

// backupDone reports the complete archive in dir, with the sum of its manifest.
func (t *task) backupDone(dir string) error {
	a, err := readArchive(dir, model.BackupID(t.ID), "")
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(dir, archiveSum))
	if err != nil || len(raw) < 64 {
		return model.Refuse(model.CodeIntegrity, "the sum of the manifest of backup %s can't be read", t.ID)
	}
	t.report(model.SideVerified, a.Bytes, a.Bytes, string(raw[:64]))
	return nil
}

func (t *task) writeData(ctx context.Context, dir string, a *archive) error {
	root, err := os.OpenRoot(t.slotDir())
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // the directory was only read
	entries, err := scan(root, t.Names, t.Live)
	if err != nil {
		return err
	}
	a.OwnUID = t.userOf(entries)
	total := newContent(root, entries).total()
	if total > maxArchiveBytes {
		return model.Refuse(model.CodeInvalid,
			"the volumes are too large for a backup: their files have %d GiB with their holes, at most %d GiB are possible",
			total>>30, int64(maxArchiveBytes)>>30)
	}
	t.report(model.SideCopying, 0, total, "")
	f, err := os.OpenFile(filepath.Join(dir, archiveData), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	file := sparse{f: f}
	out := &chunked{take: func(chunk []byte) error {
		a.Sums = append(a.Sums, sumText(chunk))
		t.progress(model.SideCopying, min(file.n, total), total)
		return errors.Join(file.write(chunk), ctx.Err())
	}}
	w := tar.NewWriter(out)
	for i := range entries {
		if err = writeEntry(w, root, &entries[i], t.Live); err != nil {
			break
		}
	}
	if err == nil {
		err = errors.Join(w.Close(), out.close(), file.close(), f.Sync())
	}
	a.Bytes, a.DiskBytes = file.n, usedBytes(entries)
	return errors.Join(err, f.Close())
}

// writeEntry adds a directory, a symbolic link or a file. If live is true, a program may write to the volume meanwhile.
// Then a file that has vanished is skipped, a shorter one is filled up with zeros, and a longer one is cut.
func writeEntry(w *tar.Writer, root *os.Root, e *entry, live bool) error {
	h := &tar.Header{Name: e.Path, Mode: tarMode(e.mode()), Uid: e.UID, Gid: e.GID, ModTime: time.Unix(0, e.Mtime),
		Format: tar.FormatPAX}
	switch {
	case e.mode().IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
		return w.WriteHeader(h)
	case e.mode().Type() == fs.ModeSymlink:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		return w.WriteHeader(h)
	}
	f, err := openRegular(root, e.Path)
	if live && vanished(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, e.Size
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	n, err := (&skipping{f: f}).copyTo(w, e.Size)
	if err == nil && n < e.Size {
		if !live {
			return model.Refuse(model.CodeIntegrity, "%s became shorter while it was read", e.Path)
		}
		_, err = io.CopyN(w, zeros{}, e.Size-n)
	}
	return err
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// tarMode converts a mode to the bits of tar; fromTar converts it back.
func tarMode(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	if m&fs.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

func fromTar(bits int64) fs.FileMode {
	m := fs.FileMode(bits) & fs.ModePerm
	if bits&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}
