// Package durable replaces files so that a crash or a power cut leaves either the old or the new content.
package durable

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file named path + ".new", and renames it to path. It blocks until the content and the name are on
// disk. After an error, path is unchanged, unless only the sync of the directory failed. In that case path has the new
// content, but a power cut may bring the old content back. Calls for the same path must not overlap.
func Replace(path string, write func(io.Writer) error, mode fs.FileMode) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return SyncDir(filepath.Dir(path))
}

// ReplaceBytes is like Replace, but takes the content as bytes.
func ReplaceBytes(path string, content []byte, mode fs.FileMode) error {
	return Replace(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}, mode)
}

// SyncDir writes the names in a directory to disk, so that they survive a power cut. It blocks until they are on disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
