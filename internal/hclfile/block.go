package hclfile

import (
	"github.com/hashicorp/hcl/v2"
)

// Field is one key that a body may have: an attribute or a block. It refers to the variable that is decoded or printed.
type Field struct {
	name     string
	kind     string   // of an attribute: the values that it takes, for people
	labels   []string // names of a block's labels
	repeated bool     // a block that may appear more than once
	required bool

	set       func(*Decoder, *hcl.Attribute) // decodes an attribute
	open      func(*Decoder, *hcl.Block)     // decodes a block
	keys      func() []Field                 // the keys of a block
	variables func(*Decoder, hcl.Body) *hcl.EvalContext
	emit      func(*Printer) // prints the key; nil: it is never printed
	rank      int            // position when it is printed: the lowest comes first

	label interface { // set if the field is the label of its block, and not a key
		get() string
		put(text string)
	}
}

// Required makes the key required.
func (f Field) Required() Field {
	f.required = true
	return f
}

// Takes sets the description of the values that an attribute takes, if its type alone says too little.
func (f Field) Takes(kind string) Field {
	f.kind = kind
	return f
}

// PrintIf omits the key from printed files unless so is true.
func (f Field) PrintIf(so bool) Field {
	if !so {
		f.emit = nil
	}
	return f
}

// Checked adds a check of an attribute's decoded value. check returns what is wrong with the value, or "".
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

// Variables returns the field of a block with a function that gives the variables for expressions in the block.
func (f Field) Variables(of func(*Decoder, hcl.Body) *hcl.EvalContext) Field {
	f.variables = of
	return f
}

type labelOf[T ~string] struct{ to *T }

func (l labelOf[T]) get() string     { return string(*l.to) }
func (l labelOf[T]) put(text string) { *l.to = T(text) }

// Label is the label of the block that has this field in its list.
func Label[T ~string](to *T) Field { return Field{label: labelOf[T]{to}} }

// labelled separates the label of a block from its other fields.
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

// Block is a block that may appear once. It is always printed.
func Block(name string, fields ...Field) Field {
	return Field{
		name: name, labels: labels(fields),
		open: func(d *Decoder, b *hcl.Block) { d.inside(b, fields) },
		keys: func() []Field { return fields },
		emit: func(p *Printer) { p.block(name, fields) },
	}
}

// Optional is a block that may appear once. It sets *to; unless an earlier file did so, the value starts as fresh.
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

// Blocks is a block that may appear more than once. If it has a label, each label may appear once. Each block adds an
// element, which starts as fresh.
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
