package term

import (
	"bytes"
	"testing"
)

// On a terminal, control characters in a program's output are replaced. If the output is no terminal, they stay.
func TestShown(t *testing.T) {
	const output = "\x1b]0;title\x07ok\té\u009b31m\r\x7f\nend\n"
	for terminal, want := range map[bool]string{true: "?]0;title?ok\té?31m?\nend\n", false: output} {
		for _, size := range []int{1, 3, len(output)} {
			var out bytes.Buffer
			a := &Console{Out: &out, Terminal: terminal}
			w := a.Printable()
			for rest := []byte(output); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if out.String() != want {
				t.Errorf("terminal %v, %d bytes at a time: %q, want %q", terminal, size, out.String(), want)
			}
		}
	}
}
