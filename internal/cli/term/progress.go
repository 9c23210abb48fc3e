package term

import (
	"fmt"
)

// Progress prints what happens while a command follows a change. Its lines stay on the screen. On a terminal it also
// prints a status line below them, which it overwrites.
type Progress struct {
	c      *Console
	status string
}

// NewProgress returns a Progress that prints to c.
func NewProgress(c *Console) *Progress { return &Progress{c: c} }

// Line prints the time and a message, above the status line.
func (p *Progress) Line(format string, args ...any) {
	p.clear()
	p.c.Printf("%s %s\n", p.c.Now().Local().Format("15:04:05"), Printable(fmt.Sprintf(format, args...)))
	if p.status != "" {
		p.c.Printf("%s", p.status)
	}
}

// Now replaces the status line. If the output is no terminal, it does nothing.
func (p *Progress) Now(format string, args ...any) {
	if !p.c.Terminal {
		return
	}
	p.clear()
	p.status = Printable(fmt.Sprintf(format, args...))
	p.c.Printf("%s", p.status)
}

func (p *Progress) clear() {
	if p.status != "" {
		p.c.Printf("\r\x1b[K")
	}
}

// End removes the status line.
func (p *Progress) End() {
	p.clear()
	p.status = ""
}
