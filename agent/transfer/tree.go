package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// maxTreeBytes limits the total size of a slot's files, holes included. At this limit, the sums of the chunks take 128
// MiB of memory.
const maxTreeBytes = int64(16) << 40

// entry is one directory, regular file or symbolic link of a tree. Sockets and pipes are not copied, since they mean
// nothing without their processes. Devices are refused. Hard links become separate files. Extended attributes are not
// copied.
type entry struct {
	Path  string `cbor:"1,keyasint"`           // NAME or NAME/..., with slashes
	Mode  uint32 `cbor:"2,keyasint"`           // fs.FileMode: type, permissions, sticky
	UID   int    `cbor:"3,keyasint,omitempty"` // the one at the source, until readdress replaces it
	GID   int    `cbor:"4,keyasint,omitempty"`
	Size  int64  `cbor:"5,keyasint,omitempty"` // 0 unless this is a regular file
	Mtime int64  `cbor:"6,keyasint"`           // Unix ns
	Link  string `cbor:"7,keyasint,omitempty"` // target of a symbolic link
	// disk space of a regular file, in bytes; less than Size if the file has holes
	Used int64 `cbor:"8,keyasint,omitempty"`
}

// keptBits are the bits of a mode that a copy keeps. setuid and setgid are dropped, because otherwise a node could put
// programs with root's rights on other nodes.
const keptBits = fs.ModePerm | fs.ModeSticky

func (e *entry) mode() fs.FileMode { return fs.FileMode(e.Mode) }

func (e *entry) regular() bool { return e.mode().IsRegular() }

// scan lists the files of the volumes below root, in order of path. If live is true, files that vanish during the scan
// are skipped. Codes: not_found (a volume is missing), invalid (a device, or too many files or bytes), internal.
func scan(root *os.Root, names []string, live bool) ([]entry, error) {
	var all []entry
	room, left := listRoom(maxList), maxTreeBytes
	for _, name := range names {
		err := fs.WalkDir(tree{root.FS(), root}, name, func(p string, d fs.DirEntry, err error) error {
			gone := func(err error) bool { return live && p != name && vanished(err) }
			if gone(err) { // a directory vanished after it was listed
				return nil
			}
			if err != nil {
				return err
			}
			e, ok, err := scanOne(root, p, d)
			switch {
			case gone(err) && d.IsDir():
				return fs.SkipDir // if the directory returned, its files would be listed without it
			case gone(err):
				return nil
			case ok && err == nil:
				all = append(all, e)
				if left -= min(e.Size, maxTreeBytes+1); left < 0 {
					return model.Refuse(model.CodeInvalid,
						"the files of the volumes have more than %d TiB in all, holes included", maxTreeBytes>>40)
				}
				return room.take(&e)
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil,
				model.Refuse(model.CodeNotFound, "volume %s has no data here, or it changed while it was listed: %v", name, err)
		}
		if err != nil {
			return nil, asCode(err, "list volume "+name)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return slices.Compare([]byte(a.Path), []byte(b.Path)) })
	return all, nil
}

// tree is the file system below root. If a program replaces a directory by a named pipe, listing that directory fails
// and does not block.
type tree struct {
	fs.FS
	root *os.Root
}

// Stat implements fs.StatFS.
func (t tree) Stat(name string) (fs.FileInfo, error) { return t.root.Stat(name) }

// ReadDir implements fs.ReadDirFS. It returns ENOTDIR if name is not a directory any more.
func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	d, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// vanished reports whether err means that a listed file is missing now, or that its directory was replaced by a file.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func scanOne(root *os.Root, p string, d fs.DirEntry) (entry, bool, error) {
	info, err := d.Info()
	if err != nil {
		return entry{}, false, err
	}
	e := entry{Path: p, Mode: uint32(info.Mode() & (fs.ModeType | keptBits)), Mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = int(st.Uid), int(st.Gid)
		if info.Mode().IsRegular() {
			e.Used = min(st.Blocks*512, info.Size())
		}
	}
	switch info.Mode().Type() {
	case 0:
		e.Size = info.Size()
	case fs.ModeDir:
	case fs.ModeSymlink:
		e.Link, err = root.Readlink(p)
	case fs.ModeSocket, fs.ModeNamedPipe:
		return e, false, nil
	default:
		err = model.Refuse(model.CodeInvalid, "%s is a device; volumes with devices can't be moved", p)
	}
	return e, err == nil, err
}

func cutPath(p string) (first, rest string, more bool) {
	for i := range len(p) {
		if p[i] == '/' {
			return p[:i], p[i+1:], true
		}
	}
	return p, "", false
}

// layOut creates the directories, files and links of a tree that do not exist yet. It sets the sizes of all files, and
// writes no content.
func layOut(root *os.Root, entries []entry) error {
	for i := range entries {
		e := &entries[i]
		var err error
		switch {
		case e.mode().IsDir():
			if err = root.Mkdir(e.Path, 0o700); errors.Is(err, fs.ErrExist) {
				err = root.Chmod(e.Path, 0o700)
			}
		case e.regular():
			err = makeFile(root, e)
		default:
			if err = root.Symlink(e.Link, e.Path); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		}
		if err != nil {
			return asCode(err, "make "+e.Path)
		}
	}
	return nil
}

// openRegular opens a regular file of a volume for reading. A running program may replace the file by a named pipe at
// any time. openRegular refuses to open such a pipe, and does not block. Code: conflict (not a regular file).
func openRegular(root *os.Root, path string) (*os.File, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = model.Refuse(model.CodeConflict, "%s is no regular file any more", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func makeFile(root *os.Root, e *entry) error {
	if info, err := root.Lstat(e.Path); err == nil && info.Mode().Perm()&0o600 != 0o600 {
		if err := root.Chmod(e.Path, 0o600); err != nil {
			return err
		}
	}
	f, err := root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(e.Size), f.Close())
}

// dress sets the modes and times of a tree, and its owners if the agent runs as root. Each directory is set after the
// files in it, since the directory's mode may forbid access to them. The directory of a volume gets the mode 0700.
func dress(root *os.Root, entries []entry) error {
	own := os.Geteuid() == 0
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		var err error
		if own {
			err = root.Lchown(e.Path, e.UID, e.GID)
		}
		if err == nil && e.mode().Type() != fs.ModeSymlink {
			at, mode := time.Unix(0, e.Mtime), e.mode()&keptBits
			if isVolume(e.Path) {
				mode = 0o700
			}
			err = errors.Join(root.Chmod(e.Path, mode), root.Chtimes(e.Path, at, at))
		}
		if err != nil {
			return asCode(err, "set the owner and mode of "+e.Path)
		}
	}
	return nil
}

// asCode returns err with a code: the code that err has already, no_capacity_disk for a full disk, otherwise internal.
// The parameter what describes the failed action in the message of an err without a code.
func asCode(err error, what string) error {
	var known *model.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return model.Refuse(model.CodeNoDisk, "%s: the disk is full", what)
	}
	return model.Refuse(model.CodeInternal, "%s: %v", what, err)
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

func describe(entries []entry, at int64) string {
	for i := range entries {
		if e := &entries[i]; e.regular() {
			if at < e.Size {
				return fmt.Sprintf("%s at byte %d", e.Path, at)
			}
			at -= e.Size
		}
	}
	return "its end"
}
