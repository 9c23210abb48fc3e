package term

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Page builds the text that a command prints for people: lines, tables without borders, and named fields.
type Page struct {
	b      strings.Builder
	Wide   bool
	Colour bool
}

// String returns everything that was printed on the page.
func (p *Page) String() string { return p.b.String() }

// Write prints text unchanged. It implements io.Writer and never fails.
func (p *Page) Write(text []byte) (int, error) { return p.b.Write(text) }

// Column is one column of a table of items of type T.
type Column[T any] struct {
	Head string
	Of   string // JSON fields that Cell reads, separated by commas; only needed if the table is passed to FieldsOf
	Cell func(T) string
	Wide bool // shown only with -o wide
}

// FieldsOf returns the JSON fields that the shown columns need, separated by commas, so that a long list can be
// requested with only these fields. If wide is false, columns that need -o wide are not shown.
func FieldsOf[T any](columns []Column[T], wide bool) string {
	var all []string
	for _, c := range columns {
		if wide || !c.Wide {
			all = append(all, c.Of)
		}
	}
	return strings.Join(all, ",")
}

// Rows prints a table: a line of column heads, and a line for each item. It prints the heads even if there are no
// items.
func Rows[T any](p *Page, items []T, columns []Column[T]) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool { return c.Wide && !p.Wide })
	lines := [][]string{{}}
	for _, c := range columns {
		lines[0] = append(lines[0], strings.ToUpper(c.Head))
	}
	for _, item := range items {
		line := make([]string, len(columns))
		for i, c := range columns {
			line[i] = OneLine(c.Cell(item))
		}
		lines = append(lines, line)
	}
	p.aligned(lines, "   ", "")
}

// Field is a name and its value.
type Field [2]string

// Fields prints names and values in two columns. It skips fields with an empty value.
func (p *Page) Fields(list ...Field) {
	var lines [][]string
	for _, f := range list {
		if f[1] != "" {
			lines = append(lines, []string{f[0], OneLine(f[1])})
		}
	}
	p.aligned(lines, "  ", "")
}

// Section prints an empty line and a heading.
func (p *Page) Section(format string, args ...any) {
	p.b.WriteString("\n" + Printable(fmt.Sprintf(format, args...)) + "\n")
}

// Line formats and prints one line.
func (p *Page) Line(format string, args ...any) {
	p.b.WriteString(Printable(fmt.Sprintf(format, args...)) + "\n")
}

func (p *Page) aligned(lines [][]string, gap, indent string) {
	var width []int
	for _, line := range lines {
		for i, cell := range line {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var b strings.Builder
		for i, cell := range line {
			b.WriteString(p.painted(cell))
			if i < len(line)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)) + gap)
			}
		}
		p.b.WriteString(indent + strings.TrimRight(b.String(), " ") + "\n")
	}
}

// paints maps words to ANSI colour codes. A cell is coloured if its whole text is one of the words.
var paints = map[string]string{
	"active": "32", "ready": "32", "running": "32", "drained": "32", "succeeded": "32", "healthy": "32", "leader": "32",
	"draining": "33", "cordoned": "33", "degraded": "33", "unreachable": "33", "pending": "33", "booting": "33",
	"rolling": "33", "starting": "33", "unready": "33",
	"offline": "31", "failed": "31", "lost": "31", "HOLD": "31", "disabled": "31",
}

func (p *Page) painted(cell string) string {
	if code, ok := paints[cell]; ok && p.Colour {
		return "\x1b[" + code + "m" + cell + "\x1b[0m"
	}
	return cell
}

// Printable replaces control characters other than line ends and tabs by '?'. Names and messages come from outside, and
// could otherwise control the user's terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// OneLine returns s as the text of a table's cell: printable and on one line. For "" it returns "-".
func OneLine(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Join(strings.Fields(Printable(s)), " ")
}
