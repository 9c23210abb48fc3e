package term

import (
	"fmt"
)

// Progress prints what happens while a command follows a change. It prints lines that stay. On a terminal it also has a
// last line, which it overwrites.
type Progress struct {
	c      *Console
	status string
}

// NewProgress shows progress on the output of a command.
func NewProgress(c *Console) *Progress { return &Progress{c: c} }

// Line prints a line that stays.
func (p *Progress) Line(format string, args ...any) {
	p.clear()
	p.c.Printf("%s %s\n", p.c.Now().Local().Format("15:04:05"), Printable(fmt.Sprintf(format, args...)))
	if p.status != "" {
		p.c.Printf("%s", p.status)
	}
}

// Now replaces the last line. Without a terminal it does nothing.
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

// End removes the last line.
func (p *Progress) End() {
	p.clear()
	p.status = ""
}
