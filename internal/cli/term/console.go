package term

import (
	"fmt"
	"io"
	"os"
	"time"
)

// Console has the streams of a command and its global flags for output. It is not safe for concurrent use.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) string
	Terminal bool // Out is a terminal
	Now      func() time.Time
	Output   OutputFlags
}

// NewConsole returns a console on the standard streams of the process.
func NewConsole() Console {
	return Console{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv,
		Terminal: isTerminal(os.Stdout), Now: time.Now}
}

// Printf writes to stdout.
func (c *Console) Printf(format string, args ...any) { fmt.Fprintf(c.Out, format, args...) }

// Note writes a line for people to stderr, because stdout is only for the result. If the user asked for JSON, Note
// writes nothing, so that a failed command writes only its error to stderr, as JSON.
func (c *Console) Note(format string, args ...any) {
	if !c.Output.Asked {
		fmt.Fprintf(c.Err, format+"\n", args...)
	}
}

// Show prints s with the template of --format. Without a template it prints s in the format of -o or --json.
func (c *Console) Show(s Result) error {
	if c.Output.Template != "" {
		return PrintTemplate(c.Printable(), c.Output.Template, s.JSON)
	}
	switch c.Output.Effective() {
	case AsJSON:
		return printJSON(c.Out, s.JSON)
	case AsYAML:
		return PrintYAML(c.Out, s.JSON)
	case AsName:
		for _, name := range s.Names {
			c.Printf("%s\n", name)
		}
		return nil
	}
	p := &Page{Wide: c.Output.Is(AsWide), Colour: c.Terminal && c.Env("NO_COLOR") == "" && c.Env("TERM") != "dumb"}
	s.Text(p)
	_, err := io.WriteString(c.Out, p.b.String())
	return err
}

// Age returns how long ago t was, as Span formats it. It returns "" if t is nil or zero.
func (c *Console) Age(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return Span(c.Now().Sub(*t))
}

// Printable returns a writer to stdout for text from outside, such as a program's output. For a terminal, the writer
// replaces control characters by '?'.
func (c *Console) Printable() io.Writer {
	if !c.Terminal {
		return c.Out
	}
	return &terminalWriter{w: c.Out}
}
