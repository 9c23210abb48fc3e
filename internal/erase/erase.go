// Package erase removes directory trees with arbitrary contents. A tree may have more levels than a process can have
// open files. Its paths may be longer than the kernel accepts, and its owner may lack permissions on directories.
package erase

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// depth is the largest number of directories that are open at once. A directory at a deeper level is first moved to
	// the root of the tree.
	depth = 32
	// batch is how many names of a directory are read at once.
	batch = 256
)

// Tree removes path and everything below it. A missing path is no error. Tree removes symbolic links, but does not
// follow them. It has at most 40 files open at a time. If it can't remove an entry, it removes all others that it can,
// and returns an error about one such entry. The error's text is short, even if the entry's path is long. Nobody else
// may move files inside the tree meanwhile.
func Tree(path string) error {
	err := os.Remove(path) // succeeds for a file, a symbolic link and an empty directory
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	info, statErr := os.Lstat(path)
	if statErr != nil || !info.IsDir() {
		return err
	}
	root, err := open(unix.AT_FDCWD, path)
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	e := eraser{root: root, prefix: ".erase-" + strconv.Itoa(os.Getpid()) + "-"}
	for e.moved = true; e.moved; { // repeat, to remove the directories that were moved to the root
		e.moved, e.failed = false, nil
		e.empty(root, 1)
	}
	_ = root.Close() // nothing was written to it
	if e.failed != nil {
		return fmt.Errorf("remove what is below %s: %w", path, e.failed)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// open opens a directory. It adds the owner's permissions that are missing, so that the entries can be removed.
func open(at int, name string) (*os.File, error) {
	const how = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, how, 0)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(at, name, 0o700, 0) == nil {
		fd, err = unix.Openat(at, name, how, 0)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(fd, 0o700) // if Fchmod fails, removing the entries fails and reports why
	}
	return os.NewFile(uintptr(fd), filepath.Base(name)), nil
}

type eraser struct {
	root   *os.File
	prefix string // of the names that moved directories get
	next   int    // number at the end of the next name with this prefix
	moved  bool   // a directory was moved to the root in this round
	failed error  // first error of this round
}

func (e *eraser) fail(name string, err error) {
	if e.failed == nil {
		e.failed = fmt.Errorf("%.100q: %w", name, err)
	}
}

// empty removes the entries of a directory, except those that it can't remove. level is the number of open directories,
// including dir.
func (e *eraser) empty(dir *os.File, level int) {
	for again := true; again; { // repeat, because reading may skip names while entries are removed
		again = false
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			e.fail(dir.Name(), err)
			return
		}
		for {
			entries, err := dir.ReadDir(batch)
			for _, entry := range entries {
				if e.remove(dir, entry.Name(), level) {
					again = true
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					e.fail(dir.Name(), err)
				}
				break
			}
		}
	}
}

// remove removes one entry from a directory. It reports whether dir no longer has the entry.
func (e *eraser) remove(dir *os.File, name string, level int) bool {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return true
	}
	var st unix.Stat_t
	if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		e.fail(name, err)
		return false
	}
	if e.rmdir(at, name) == nil {
		return true
	}
	if level >= depth {
		return e.moveUp(at, name)
	}
	below, err := open(at, name)
	if err != nil {
		e.fail(name, err)
		return false
	}
	e.empty(below, level+1)
	_ = below.Close() // nothing was written to it
	if err := e.rmdir(at, name); err != nil {
		e.fail(name, err)
		return false
	}
	return true
}

func (e *eraser) rmdir(at int, name string) error {
	err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// moveUp moves a deeply nested directory to the root of the tree. It returns false if it can't.
func (e *eraser) moveUp(at int, name string) bool {
	const tries = 1000 // entries of the root may already have the first names
	var err error
	for range tries {
		to := e.prefix + strconv.Itoa(e.next)
		e.next++
		err = unix.Renameat2(at, name, int(e.root.Fd()), to, unix.RENAME_NOREPLACE)
		// A move changes the directory's "..", so its owner needs write permission on the directory.
		if errors.Is(err, unix.EACCES) && unix.Fchmodat(at, name, 0o700, 0) == nil {
			err = unix.Renameat2(at, name, int(e.root.Fd()), to, unix.RENAME_NOREPLACE)
		}
		if err == nil {
			e.moved = true
			return true
		}
		if !errors.Is(err, unix.EEXIST) {
			break
		}
	}
	e.fail(name, err)
	return false
}
