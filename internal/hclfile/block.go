package hclfile

import (
	"github.com/hashicorp/hcl/v2"
)

// Field is one key of a body (an attribute or a block), or the label of the block around the body. It refers to the
// variable that the key is decoded into and printed from.
type Field struct {
	name     string
	kind     string   // description of the values that an attribute takes
	labels   []string // names of a block's labels
	repeated bool     // a block that may appear more than once
	required bool

	set       func(*Decoder, *hcl.Attribute)            // decodes an attribute
	open      func(*Decoder, *hcl.Block)                // decodes a block
	keys      func() []Field                            // returns the keys of a block
	variables func(*Decoder, hcl.Body) *hcl.EvalContext // returns a block's variables; if nil, the outer ones apply
	foreign   map[string]string                         // hints for words that a block does not know
	emit      func(*Printer)                            // prints the key; nil means that the key is never printed
	rank      int                                       // fields are printed in ascending order of rank

	label interface { // set only if the field is the label of its block
		get() string
		put(text string)
	}
}

// Required makes the key required.
func (f Field) Required() Field {
	f.required = true
	return f
}

// Takes sets the description of the values that an attribute takes. Use it where the attribute's type alone says too
// little.
func (f Field) Takes(kind string) Field {
	f.kind = kind
	return f
}

// PrintIf omits the key from printed files if its argument is false.
func (f Field) PrintIf(so bool) Field {
	if !so {
		f.emit = nil
	}
	return f
}

// Checked adds a check that runs after an attribute is decoded. The function check reads the decoded variable. It
// returns what is wrong with the value, or an empty summary if the value is valid.
func (f Field) Checked(check func() (summary, detail string)) Field {
	set := f.set
	f.set = func(d *Decoder, a *hcl.Attribute) {
		set(d, a)
		if summary, detail := check(); summary != "" {
			d.Fail(a.Expr.Range(), summary, detail)
		}
	}
	return f
}

// Variables sets the function that returns the variables for expressions in the block. The function gets the block's
// body.
func (f Field) Variables(of func(*Decoder, hcl.Body) *hcl.EvalContext) Field {
	f.variables = of
	return f
}

// Foreign sets hints for words of other programs that people write in the block, such as those of compose. A hint says
// what to write instead.
func (f Field) Foreign(hints map[string]string) Field {
	f.foreign = hints
	return f
}

type labelOf[T ~string] struct{ to *T }

func (l labelOf[T]) get() string     { return string(*l.to) }
func (l labelOf[T]) put(text string) { *l.to = T(text) }

// Label returns the field for the label of a block. Put it into the list of the block's fields.
func Label[T ~string](to *T) Field { return Field{label: labelOf[T]{to}} }

// labelled separates the fields of a block into its label, if the block has one, and its keys.
func labelled(fields []Field) (label, rest []Field) {
	for _, f := range fields {
		if f.label != nil {
			label = append(label, f)
		} else {
			rest = append(rest, f)
		}
	}
	return label, rest
}

// labels returns the names of the labels of a block that has these fields.
func labels(fields []Field) []string {
	if label, _ := labelled(fields); len(label) > 0 {
		return []string{"name"}
	}
	return nil
}

// inside decodes the label and the body of a block.
func (d *Decoder) inside(b *hcl.Block, fields []Field) {
	label, rest := labelled(fields)
	for i, l := range label {
		l.label.put(b.Labels[i])
	}
	d.body(b.Body, rest)
}

// Block is a block that may appear once. It is printed unless Printer.Zero lets it be left out.
func Block(name string, fields ...Field) Field {
	return Field{
		name: name, labels: labels(fields),
		open: func(d *Decoder, b *hcl.Block) { d.inside(b, fields) },
		keys: func() []Field { return fields },
		emit: func(p *Printer) {
			one := Printer{Filled: p.Filled, Zero: p.Zero}
			one.block(name, fields)
			if p.Zero == nil || one.b.String() != name+" {}\n" {
				p.b.WriteString(one.b.String())
			}
		},
	}
}

// Optional is a block that may appear once in a file. If *to is nil, it first becomes a pointer to fresh. Then the
// block is decoded into **to, so that a later file can change the values of an earlier one. The block is not printed if
// *to is nil.
func Optional[T any](name string, to **T, fresh T, fields func(*T) []Field) Field {
	return Field{
		name: name, labels: labels(fields(new(T))),
		open: func(d *Decoder, b *hcl.Block) {
			if *to == nil {
				*to = &fresh
			}
			d.inside(b, fields(*to))
		},
		keys: func() []Field { return fields(new(T)) },
		emit: func(p *Printer) {
			if *to != nil {
				p.block(name, fields(*to))
			}
		},
	}
}

// Blocks is a block that may appear more than once. If the block has a label, each label may appear only once. Each
// block is decoded into a copy of fresh, which is then appended to *to.
func Blocks[T any](name string, to *[]T, fresh T, fields func(*T) []Field) Field {
	return Field{
		name: name, labels: labels(fields(new(T))), repeated: true,
		open: func(d *Decoder, b *hcl.Block) {
			one := fresh
			d.inside(b, fields(&one))
			*to = append(*to, one)
		},
		keys: func() []Field { return fields(new(T)) },
		emit: func(p *Printer) {
			for i := range *to {
				p.block(name, fields(&(*to)[i]))
			}
		},
	}
}
