package audit

import (
	"errors"
	"fmt"
	"io"
	"log/syslog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
)

// followEvery is how often the file is compared with what is at its path.
const followEvery = time.Second

// FileConfig describes the file of an audit log.
type FileConfig struct {
	Path string
	// MaxBytes is the largest size of the file. Before a write that would exceed it, the file is renamed to Path.1, and a
	// new file is begun.
	MaxBytes int64
	// Keep is how many renamed files are kept: Path.1 is the newest.
	Keep   int
	Logger hclog.Logger
}

// file is a Sink that writes to a file of mode 0600, and rotates it.
type file struct {
	FileConfig
	f      *os.File
	info   os.FileInfo
	size   int64
	torn   bool // the file does not end with a whole line
	looked time.Time
	warned time.Time
}

// CheckFile refuses the path of an audit log if something other than a file or a character device is there. It also
// refuses a directory that does not exist, that this process can't write, or that everybody can write and that is not
// sticky. Code: file_error.
func CheckFile(path string) error {
	at, err := os.Lstat(path)
	if err == nil && !at.Mode().IsRegular() && at.Mode()&os.ModeCharDevice == 0 {
		return model.Refuse(model.CodeFile, "audit.file is %s, which is no file", path).
			WithHint("name a file, which need not exist yet, such as %s", filepath.Join(path, "audit.log"))
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = syscall.Access(dir, 0x2|0x1) // to write and to search
	}
	if err != nil {
		return model.Refuse(model.CodeFile, "audit.file is %s, and its directory can't be used: %v", path, err).
			WithHint("make it on this machine, as the user that runs the server: mkdir -m 0700 %s", dir)
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		return model.Refuse(model.CodeFile, "audit.file is %s, and everybody may write to its directory: anybody could "+
			"take the audit log away", path).WithHint("chmod o-w %s", dir)
	}
	return nil
}

// OpenFile opens the file of an audit log, and makes it if it does not exist. Code: file_error.
func OpenFile(cfg FileConfig) (Sink, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if err := CheckFile(cfg.Path); err != nil {
		return nil, err
	}
	s := &file{FileConfig: cfg}
	if err := s.open(); err != nil {
		return nil, model.Refuse(model.CodeFile, "the audit log can't be opened: %v", err).
			WithHint("check audit.file and the rights on it")
	}
	return s, nil
}

func (s *file) open() error {
	f, err := os.OpenFile(s.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
		err = f.Chmod(0o600)
	}
	if err == nil && !info.Mode().IsRegular() && info.Mode()&os.ModeCharDevice == 0 {
		err = fmt.Errorf("%s is no file", s.Path)
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	s.f, s.info, s.size, s.looked = f, info, info.Size(), time.Now()
	s.torn = false
	if s.size > 0 {
		var last [1]byte
		_, err := f.ReadAt(last[:], s.size-1)
		s.torn = err != nil || last[0] != '\n'
	}
	return syncDir(filepath.Dir(s.Path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Write implements Sink.
func (s *file) Write(lines []byte) error {
	if s.moved() {
		if err := s.Reopen(); err != nil {
			return err
		}
	}
	if s.f == nil {
		if err := s.open(); err != nil {
			return err
		}
	}
	if s.size > 0 && s.size+int64(len(lines)) > s.MaxBytes {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	if s.torn {
		lines = append([]byte("\n"), lines...)
	}
	n, err := s.f.Write(lines)
	if err != nil {
		if n > 0 && s.f.Truncate(s.size) != nil {
			s.torn, s.size = true, s.size+int64(n)
		}
		return err
	}
	s.size, s.torn = s.size+int64(n), false
	return nil
}

// moved reports whether another file, or none, is at the path now. It looks at most once per followEvery, and returns
// false otherwise.
func (s *file) moved() bool {
	if s.f == nil || time.Since(s.looked) < followEvery {
		return false
	}
	s.looked = time.Now()
	info, err := os.Stat(s.Path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(info, s.info)
}

// rotate renames the file and begins a new one. If a rename fails, rotate logs a warning, and the file grows beyond
// MaxBytes.
func (s *file) rotate() error {
	for i := s.Keep - 1; i >= 1; i-- {
		err := os.Rename(fmt.Sprintf("%s.%d", s.Path, i), fmt.Sprintf("%s.%d", s.Path, i+1))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.warn(err)
			return nil // otherwise a kept file would be overwritten
		}
	}
	if err := os.Rename(s.Path, s.Path+".1"); err != nil {
		s.warn(err)
		return nil
	}
	return s.Reopen()
}

func (s *file) warn(err error) {
	if time.Since(s.warned) > time.Minute {
		s.warned = time.Now()
		s.Logger.Warn("the audit log can't be rotated", "error", err)
	}
}

// Sync implements Sink.
func (s *file) Sync() error {
	if s.f == nil || !s.info.Mode().IsRegular() {
		return nil
	}
	return s.f.Sync()
}

// Reopen implements Sink.
func (s *file) Reopen() error {
	err := s.Close()
	return errors.Join(err, s.open())
}

// Close implements Sink.
func (s *file) Close() error {
	if s.f == nil {
		return nil
	}
	err := errors.Join(s.Sync(), s.f.Close())
	s.f = nil
	return err
}

// Stdout returns a Sink that writes to the standard output of this process. Code: file_error.
func Stdout() (Sink, error) {
	fd, err := syscall.Dup(int(os.Stdout.Fd())) // a closed pipe at descriptor 1 would end the process
	if err != nil {
		return nil, model.Refuse(model.CodeFile, "the standard output can't be used for the audit log: %v", err)
	}
	return plain{os.NewFile(uintptr(fd), "stdout")}, nil
}

// Syslog returns a Sink that writes to the syslog of this machine, with the facility authpriv and the level info. Code:
// file_error.
func Syslog() (Sink, error) {
	w, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_INFO, "outspan-audit")
	if err != nil {
		return nil, model.Refuse(model.CodeFile, "the audit log can't be sent to syslog: %v", err).
			WithHint("start a syslog daemon, or take audit.syslog out of the configuration")
	}
	return plain{each{w}}, nil
}

// each passes lines on one by one, as syslog wants them.
type each struct{ io.WriteCloser }

// Write implements io.Writer.
func (e each) Write(lines []byte) (n int, err error) {
	for n < len(lines) {
		end := n + 1
		for end < len(lines) && lines[end-1] != '\n' {
			end++
		}
		if _, err := e.WriteCloser.Write(lines[n:end]); err != nil {
			return n, err
		}
		n = end
	}
	return n, nil
}
