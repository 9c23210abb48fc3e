package cli

import "io"

// shown is where text of others goes, such as a program's output: on a terminal without what could steer that.
func (a *app) shown() io.Writer {
	if !a.terminal {
		return a.out
	}
	return &terminalWriter{w: a.out}
}

// terminalWriter replaces control characters by '?', as printable does, except line ends and tabs; carriage returns are
// left out. Programs' colours are lost with them. A character may be spread over two writes.
type terminalWriter struct {
	w    io.Writer
	lead bool // the byte 0xC2 has come: a control character of two bytes may follow
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
