package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outspan/outspan/model"
)

// listFile is the list of files that a source sent. The list may be large, so it is on disk, in a file that has no name
// any more and vanishes when it is closed.
type listFile struct {
	*os.File
	sum sum
}

// bringList fetches the list from the source. The next read of the result begins at the start of the list. The caller
// closes the result.
func (t *task) bringList(ctx context.Context) (*listFile, error) {
	dir := filepath.Join(t.m.cfg.Volumes, stagingDir)
	if err := os.MkdirAll(t.m.cfg.Volumes, 0o711); err != nil {
		return nil, asCode(err, "make the directory of volumes")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, asCode(err, "make a place for the list of files")
	}
	f, err := os.CreateTemp(dir, "list-")
	if err != nil {
		return nil, asCode(err, "make a place for the list of files")
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) { // sweep may have removed it already
		return nil, asCode(errors.Join(err, f.Close()), "make a place for the list of files")
	}
	list := &listFile{File: f}
	list.sum, err = t.readList(ctx, f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return list, nil
}

func (l *listFile) copyTo(w io.Writer) error {
	_, err := io.Copy(w, io.NewSectionReader(l.File, 0, 1<<62))
	return err
}

// readList asks the source for its list, writes the list to a writer, and returns the SHA-256 of the list.
func (t *task) readList(ctx context.Context, to io.Writer) (all sum, err error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	resp, err := t.open(ctx, "manifest")
	if err != nil {
		return all, err
	}
	defer resp.Body.Close()
	whole := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, whole), io.LimitReader(resp.Body, maxList+1))
	if err == nil && n > maxList {
		return all, model.Refuse(model.CodeInvalid, "the list of files has more than %d MiB", maxList>>20)
	}
	if errors.Is(err, syscall.ENOSPC) {
		return all, asCode(err, "keep the list of files")
	}
	if err != nil {
		return all, t.brokeOff(err)
	}
	return sum(whole.Sum(nil)), nil
}

func copyFile(to io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(to, f)
	return err
}
