package term

import (
	"fmt"
)

// Progress prints what happens while a command follows a change. The lines stay on the screen. On a terminal, Progress
// also prints a status line below them and overwrites it.
type Progress struct {
	c      *Console
	status string
}

// NewProgress returns a Progress that prints to c.
func NewProgress(c *Console) *Progress { return &Progress{c: c} }

// Line prints the time and a message as a line above the status line.
func (p *Progress) Line(format string, args ...any) {
	p.clear()
	p.c.Printf("%s %s\n", p.c.Now().Local().Format("15:04:05"), Printable(fmt.Sprintf(format, args...)))
	if p.status != "" {
		p.c.Printf("%s", p.status)
	}
}

// Now replaces the status line. It does nothing if the output is not a terminal.
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
