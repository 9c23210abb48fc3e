package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// page is what people read: tables without borders, and fields with names.
type page struct {
	b      strings.Builder
	wide   bool
	colour bool
}

// column is one column of a table of Ts.
type column[T any] struct {
	head string
	of   string // the JSON fields that cell reads, joined by commas; empty where whole items are read anyway
	cell func(T) string
	wide bool // only with -o wide
}

// fieldsOf are the JSON fields that a table reads: a list of thousands is then not sent and decoded for nothing.
func fieldsOf[T any](columns []column[T], wide bool) string {
	var all []string
	for _, c := range columns {
		if wide || !c.wide {
			all = append(all, c.of)
		}
	}
	return strings.Join(all, ",")
}

// rows prints a table. The heads are printed also when there are no rows.
func rows[T any](p *page, items []T, columns []column[T]) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide && !p.wide })
	lines := [][]string{{}}
	for _, c := range columns {
		lines[0] = append(lines[0], strings.ToUpper(c.head))
	}
	for _, item := range items {
		line := make([]string, len(columns))
		for i, c := range columns {
			line[i] = oneLine(c.cell(item))
		}
		lines = append(lines, line)
	}
	p.aligned(lines, "   ", "")
}

// field is one line of fields: a name and its value.
type field struct{ name, value string }

// fields prints names and values, aligned. Empty values are left out.
func (p *page) fields(list ...field) {
	var lines [][]string
	for _, f := range list {
		if f.value != "" {
			lines = append(lines, []string{f.name, oneLine(f.value)})
		}
	}
	p.aligned(lines, "  ", "")
}

// section begins a part of the page.
func (p *page) section(format string, args ...any) {
	p.b.WriteString("\n" + printable(fmt.Sprintf(format, args...)) + "\n")
}

// line prints one line.
func (p *page) line(format string, args ...any) {
	p.b.WriteString(printable(fmt.Sprintf(format, args...)) + "\n")
}

func (p *page) aligned(lines [][]string, gap, indent string) {
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

// paints are the colours of words that stand alone in a cell.
var paints = map[string]string{
	"active": "32", "ready": "32", "running": "32", "drained": "32", "succeeded": "32", "healthy": "32", "leader": "32",
	"draining": "33", "cordoned": "33", "degraded": "33", "unreachable": "33", "pending": "33", "booting": "33", "rolling": "33", "starting": "33", "unready": "33",
	"offline": "31", "failed": "31", "lost": "31", "HOLD": "31", "disabled": "31",
}

func (p *page) painted(cell string) string {
	if code, ok := paints[cell]; ok && p.colour {
		return "\x1b[" + code + "m" + cell + "\x1b[0m"
	}
	return cell
}

// printable takes out what could steer a terminal: names and messages come from others.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

func oneLine(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Join(strings.Fields(printable(s)), " ")
}

// sizeText is a number of bytes as job files write it: whole units, rounded down.
func sizeText(n int64) string { return model.SizeText(n) }

// age is how long ago t was, in its largest two units; "-" for no time.
func (a *app) age(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return span(a.now().Sub(*t))
}

// span writes a length of time in its largest two units.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// stamp is a moment for people, in their own time zone.
func stamp(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// labelsText is k=v pairs in order of their names.
func labelsText(labels map[string]string) string {
	var parts []string
	for k, v := range labels {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// number is n, or "" where 0 says nothing.
func number[T ~int | ~int64 | ~uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// durationValue is a flag that takes what job files take: 30s, 1h, none.
type durationValue struct {
	d   *model.Duration
	set bool
}

// String implements pflag.Value.
func (v *durationValue) String() string {
	if v.d == nil || !v.set {
		return ""
	}
	return v.d.String()
}

// Set implements pflag.Value.
func (v *durationValue) Set(text string) error {
	d, err := model.ParseDuration(text)
	if err == nil {
		*v.d, v.set = d, true
	}
	return err
}

// Type implements pflag.Value.
func (v *durationValue) Type() string { return "duration" }

func isTTY(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
