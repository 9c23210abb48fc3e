package hclfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printer prints fields as a file. The zero value escapes all templates, so that strings keep their literal value.
type Printer struct {
	// Filled reports whether "${name}" in a string is a template to print unescaped. All other templates are escaped.
	Filled func(name string) bool
	// Zero reports whether an attribute that takes a number, a size, a duration or true or false is printed although it
	// has the zero value. A block without labels is then left out if nothing is in it. nil means that all are printed.
	Zero func(name string) bool

	b strings.Builder
}

// PrintFirst makes the printer put the named fields of a body first, in the order of names. The order of the list
// itself, which Keys follows, stays the same.
func PrintFirst(fields []Field, names ...string) []Field {
	for i := range fields {
		if at := slices.Index(names, fields[i].name); at >= 0 {
			fields[i].rank = at - len(names)
		}
	}
	return fields
}

// Print returns the file with these fields, in canonical form. If the file format can't express a value, the returned
// file fails to decode.
func (p *Printer) Print(fields ...Field) (string, error) {
	p.b.Reset()
	p.fields(fields)
	out, err := Format("printed", []byte(p.b.String()))
	return string(out), err
}

// fields prints the fields of a body in order of rank.
func (p *Printer) fields(fields []Field) {
	ordered := slices.Clone(fields)
	slices.SortStableFunc(ordered, func(x, y Field) int { return cmp.Compare(x.rank, y.rank) })
	for _, f := range ordered {
		if f.emit != nil {
			f.emit(p)
		}
	}
}

func (p *Printer) block(name string, fields []Field) {
	label, rest := labelled(fields)
	inner := Printer{Filled: p.Filled, Zero: p.Zero}
	inner.fields(rest)
	p.b.WriteString(name)
	for _, l := range label {
		p.b.WriteString(" " + (&Printer{}).quoted(l.label.get())) // labels have no templates
	}
	p.b.WriteString(" {")
	if inside := inner.b.String(); inside != "" { // an empty block stays on one line: port "http" {}
		p.b.WriteString("\n" + inside)
	}
	p.b.WriteString("}\n")
}

// zero reports whether the zero value of an attribute is left out.
func (p *Printer) zero(name string, isZero bool) bool {
	return isZero && p.Zero != nil && !p.Zero(name)
}

func (p *Printer) attribute(name, value string) { fmt.Fprintf(&p.b, "%s = %s\n", name, value) }

// unlessEmpty returns text as an HCL string, or "" if text is empty.
func (p *Printer) unlessEmpty(text string) string {
	if text == "" {
		return ""
	}
	return p.quoted(text)
}

// list returns texts as an HCL list of strings, or "" if texts is empty.
func (p *Printer) list(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	parts := make([]string, len(texts))
	for i, one := range texts {
		parts[i] = p.quoted(one)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// quoted returns s as an HCL string. It keeps templates that Filled accepts, and escapes anything else that looks like
// a template.
func (p *Printer) quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	for i, r := range s {
		after, opens := strings.CutPrefix(s[i+utf8.RuneLen(r):], "{")
		name, _, closed := strings.Cut(after, "}")
		switch {
		case r == '$' && opens && closed && p.Filled != nil && p.Filled(name):
			b.WriteByte('$')
		case (r == '$' || r == '%') && opens:
			b.WriteRune(r)
			b.WriteRune(r)
		default:
			b.WriteString(escaped(r, strings.HasPrefix(s[i+utf8.RuneLen(r):], string(r))))
		}
	}
	b.WriteByte('"')
	return b.String()
}

// escaped returns a character as it is written in an HCL string. strconv.Quote can't be used, because HCL has no \x and
// no \a. If again is true, the next character is the same. The first character of "$$" and "%%" must be escaped,
// because HCL reads these pairs as escapes.
func escaped(r rune, again bool) string {
	switch {
	case r == '"' || r == '\\':
		return `\` + string(r)
	case r == '\n':
		return `\n`
	case r == '\r':
		return `\r`
	case r == '\t':
		return `\t`
	case r > 0xffff && !unicode.IsPrint(r):
		return fmt.Sprintf(`\U%08x`, r)
	case !unicode.IsPrint(r), again && (r == '$' || r == '%'):
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}
