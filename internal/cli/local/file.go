package local

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/outspan/outspan/internal/cli/term"
)

// MaxJobFile is the number of bytes that commands read of a job file. It is one more than the parser accepts, so that
// the parser refuses a larger file.
const MaxJobFile = 256<<10 + 1

// ReadFile reads a file, or standard input if path is "-". The parameter most is the limit in bytes. If the file is
// longer, ReadFile returns its beginning and no error. Code: invalid.
func ReadFile(t *term.Console, path string, most int64) ([]byte, error) {
	in := t.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, term.Usage("can't read the file: %v", err).WithHint("%s", fileHint(path, err))
		}
		defer f.Close()
		in = f
	}
	src, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, term.Usage("can't read %s: %v", path, err).WithHint("%s", fileHint(path, err))
	}
	return src, nil
}

// fileHint returns the hint for a file that can't be read.
func fileHint(path string, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "check the path; an example of a job file is written by: outspan job init"
	case errors.Is(err, fs.ErrPermission):
		return "see who may read it with: ls -l " + path
	case errors.Is(err, syscall.EISDIR):
		return "name a file in it"
	}
	return "give another file, or - for standard input"
}
