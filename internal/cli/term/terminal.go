package term

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWriter writes text to a terminal. Like Printable, it replaces control characters other than line ends and
// tabs by '?', so the output of a program loses its colours. It drops carriage returns. It also finds a two-byte
// control character that is split between two writes.
type terminalWriter struct {
	w    io.Writer
	lead bool // the last byte was 0xC2, which may begin a two-byte control character
}

// Write implements io.Writer.
func (t *terminalWriter) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(b)+1)
	for _, c := range b {
		control := c < ' ' && c != '\n' && c != '\t' || c == 0x7f
		if t.lead {
			t.lead = false
			if c >= 0x80 && c < 0xa0 {
				out = append(out, '?')
				continue
			}
			out = append(out, 0xc2)
		}
		switch {
		case c == 0xc2:
			t.lead = true
		case c == '\r':
		case control:
			out = append(out, '?')
		default:
			out = append(out, c)
		}
	}
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull && isTTY(f)
}

func isTTY(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
