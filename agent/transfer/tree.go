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

// maxTreeBytes limits the total size of a slot's files, holes included. The sums of their chunks take up to 128 MiB.
const maxTreeBytes = int64(16) << 40

// entry is one file of a tree. Only directories, regular files and symbolic links are copied: sockets and pipes mean
// nothing without their processes, and devices are refused. Hard links become separate files. Extended attributes are
// not kept.
type entry struct {
	Path  string `cbor:"1,keyasint"`           // NAME or NAME/..., with slashes
	Mode  uint32 `cbor:"2,keyasint"`           // fs.FileMode: type, permissions, sticky
	UID   int    `cbor:"3,keyasint,omitempty"` // at first that of the source; see owners
	GID   int    `cbor:"4,keyasint,omitempty"`
	Size  int64  `cbor:"5,keyasint,omitempty"` // 0 unless it is a regular file
	Mtime int64  `cbor:"6,keyasint"`           // Unix ns
	Link  string `cbor:"7,keyasint,omitempty"` // target of a symbolic link
	// disk space of a regular file; less than Size if it has holes
	Used int64 `cbor:"8,keyasint,omitempty"`
}

// keptBits are the bits of a mode that a copy keeps. setuid and setgid are dropped: otherwise a node could place
// programs with root's rights on other nodes.
const keptBits = fs.ModePerm | fs.ModeSticky

func (e *entry) mode() fs.FileMode { return fs.FileMode(e.Mode) }

func (e *entry) regular() bool { return e.mode().IsRegular() }

// scan lists the volumes below root, in order of path. Files of a live volume that vanish meanwhile are left out.
// Codes: not_found (a volume is missing), invalid (a device, or too many files or bytes), internal.
func scan(root *os.Root, names []string, live bool) ([]entry, error) {
	var all []entry
	room, left := listRoom(maxList), maxTreeBytes
	for _, name := range names {
		err := fs.WalkDir(tree{root.FS(), root}, name, func(p string, d fs.DirEntry, err error) error {
			gone := func(err error) bool { return live && p != name && vanished(err) }
			if gone(err) { // it vanished after it was listed
				return nil
			}
			if err != nil {
				return err
			}
			e, ok, err := scanOne(root, p, d)
			switch {
			case gone(err) && d.IsDir():
				return fs.SkipDir // if the directory comes back, its files would be listed without it
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

// tree is the file system below root while programs may change its files. A program can replace a directory by a named
// pipe. Then listing it fails and does not block.
type tree struct {
	fs.FS
	root *os.Root
}

// Stat implements fs.StatFS.
func (t tree) Stat(name string) (fs.FileInfo, error) { return t.root.Stat(name) }

// ReadDir implements fs.ReadDirFS. It returns ENOTDIR if name is no directory any more.
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

// layOut makes the directories, files and links of a tree. It sets the sizes of files without writing content, and
// keeps the content of existing files.
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

// openRegular opens a file of a volume for reading. A running program may replace the file at any time, and opening a
// named pipe would block. So openRegular does not wait, and refuses all but regular files. Code: conflict.
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

// dress sets the modes and times of a tree, and its owners if the agent runs as root. Each directory is set after its
// files. Only the owner of a volume may enter its directory.
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

// asCode returns an error with a code: that of err if it has one, no_capacity_disk for a full disk, otherwise internal.
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
