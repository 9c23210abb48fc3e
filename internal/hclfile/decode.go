package hclfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Decoder decodes bodies into variables and collects all mistakes. It is not safe for concurrent use. The zero value is
// ready to use.
type Decoder struct {
	diags     hcl.Diagnostics
	variables *hcl.EvalContext  // variables that expressions may use; nil means none
	places    places            // places of the decoded keys
	path      []string          // path of the block that is being decoded
	foreign   map[string]string // Field.Foreign of that block
}

// File decodes one file: it checks the limits, parses src and decodes the body. It returns the body even if decoding
// the body failed. It returns nil if src exceeds a limit or can't be parsed. Err returns the mistakes.
func (d *Decoder) File(name string, src []byte, fields ...Field) hcl.Body {
	body, diags := parse(name, src)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	d.body(body, fields)
	return body
}

// Err returns all mistakes as one error, or nil if there are no mistakes. Code: invalid.
func (d *Decoder) Err() error { return asError(d.diags) }

// body decodes one body. The message about an unknown key suggests a known key or lists all known keys. An attribute
// and a block may have the same name.
func (d *Decoder) body(body hcl.Body, fields []Field) {
	schema := &hcl.BodySchema{}
	for _, f := range fields {
		if f.set != nil {
			schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: f.name, Required: f.required})
		} else {
			schema.Blocks = append(schema.Blocks, hcl.BlockHeaderSchema{Type: f.name, LabelNames: f.labels})
		}
	}
	content, diags := body.Content(schema)
	d.diags = append(d.diags, nameKeys(diags, fields, d.foreign)...)
	for _, f := range fields {
		if f.set != nil {
			if attr, ok := content.Attributes[f.name]; ok {
				d.note(attr.Expr.Range(), append(d.path, f.name)...)
				f.set(d, attr)
			}
			continue
		}
		d.blocks(content.Blocks.OfType(f.name), f, body)
	}
}

func (d *Decoder) blocks(blocks hcl.Blocks, f Field, body hcl.Body) {
	if len(blocks) == 0 && f.required {
		d.Fail(body.MissingItemRange(), "Missing block", fmt.Sprintf("A block %q is needed here.", f.name))
	}
	seen := map[string]bool{}
	for i, b := range blocks {
		key := strings.Join(b.Labels, "\x00")
		switch {
		case i > 0 && !f.repeated:
			d.Fail(b.DefRange, "Duplicate block", fmt.Sprintf("Only one block %q may stand here.", f.name))
		case len(f.labels) > 0 && seen[key]:
			d.Fail(b.DefRange, "Duplicate block", fmt.Sprintf("There is already a block %q named %q.", f.name, b.Labels[0]))
		default:
			d.open(f, b, i)
		}
		seen[key] = true
	}
}

// open decodes one block. The parameter i is the block's position among the blocks of the field, from 0.
func (d *Decoder) open(f Field, b *hcl.Block, i int) {
	outer, variables, foreign := d.path, d.variables, d.foreign
	defer func() { d.path, d.variables, d.foreign = outer, variables, foreign }()
	d.foreign = f.foreign
	d.path = append(slices.Clone(outer), f.name)
	switch {
	case len(b.Labels) > 0:
		d.path = append(d.path, b.Labels...)
	case f.repeated:
		d.path = append(d.path, strconv.Itoa(i))
	}
	d.note(b.DefRange, d.path...)
	if f.variables != nil {
		d.variables = f.variables(d, b.Body)
	}
	f.open(d, b)
}

// Fail adds a mistake.
func (d *Decoder) Fail(at hcl.Range, summary, detail string) {
	d.diags = append(d.diags, problem(at, summary, detail)...)
}

// Failures returns the number of mistakes so far.
func (d *Decoder) Failures() int { return len(d.diags) }

// eval evaluates an attribute's expression. If that fails, eval adds a mistake and returns false.
func (d *Decoder) eval(attr *hcl.Attribute) (cty.Value, bool) {
	v, diags := attr.Expr.Value(d.variables)
	explainTemplates(diags, attr, d.variables)
	d.diags = append(d.diags, diags...)
	return v, !diags.HasErrors()
}

// value evaluates an attribute's expression. If the result does not have the type want, value adds a mistake that
// quotes example, and returns false. It converts nothing: a number is not accepted as a string.
func (d *Decoder) value(attr *hcl.Attribute, want cty.Type, example string) (cty.Value, bool) {
	v, ok := d.eval(attr)
	if !ok {
		return v, false
	}
	if v.IsNull() || !v.IsWhollyKnown() || !v.Type().Equals(want) {
		d.Fail(attr.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes %s, such as %s.", attr.Name, typeName(want), example))
		return v, false
	}
	return v, true
}

func typeName(t cty.Type) string {
	switch t {
	case cty.String:
		return "a text in quotes"
	case cty.Number:
		return "a number"
	case cty.Bool:
		return "true or false"
	}
	return t.FriendlyName()
}
