package config

import (
	"fmt"
	"math/big"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/outspan/outspan/model"
)

// decoder fills values from bodies and collects everything that is wrong on the way.
type decoder struct {
	diags     hcl.Diagnostics
	variables *hcl.EvalContext // what expressions may refer to; nil: every expression is constant
	keys      *keyList         // not nil: the keys are listed, nothing is decoded
	places    places           // where the keys that were decoded stand
	path      []string         // of the block that is decoded
}

// field is one key that a body may have: an attribute (set) or a block (open).
type field struct {
	name     string
	kind     string   // of an attribute: what it takes, for people
	labels   []string // of a block
	repeated bool     // a block that may stand more than once
	required bool
	set      func(*decoder, *hcl.Attribute)
	open     func(*decoder, *hcl.Block)
}

// body decodes one body. Unknown keys are errors with a suggestion; an attribute and a block may share a name.
func (d *decoder) body(body hcl.Body, fields ...field) {
	if d.keys != nil {
		d.list(fields)
		return
	}
	schema := &hcl.BodySchema{}
	for _, f := range fields {
		if f.set != nil {
			schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: f.name, Required: f.required})
		} else {
			schema.Blocks = append(schema.Blocks, hcl.BlockHeaderSchema{Type: f.name, LabelNames: f.labels})
		}
	}
	content, diags := body.Content(schema)
	d.diags = append(d.diags, nameKeys(diags, fields)...)
	for _, f := range fields {
		if f.set != nil {
			if attr, ok := content.Attributes[f.name]; ok {
				d.places.note(attr.Expr.Range(), append(d.path, f.name)...)
				f.set(d, attr)
			}
			continue
		}
		d.blocks(content.Blocks.OfType(f.name), f, body)
	}
}

func (d *decoder) blocks(blocks hcl.Blocks, f field, body hcl.Body) {
	if len(blocks) == 0 && f.required {
		d.fail(body.MissingItemRange(), "Missing block", fmt.Sprintf("A block %q is needed here.", f.name))
	}
	seen := map[string]bool{}
	for i, b := range blocks {
		key := strings.Join(b.Labels, "\x00")
		switch {
		case i > 0 && !f.repeated:
			d.fail(b.DefRange, "Duplicate block", fmt.Sprintf("Only one block %q may stand here.", f.name))
		case len(f.labels) > 0 && seen[key]:
			d.fail(b.DefRange, "Duplicate block", fmt.Sprintf("There is already a block %q named %q.", f.name, b.Labels[0]))
		default:
			d.open(f, b, i)
		}
		seen[key] = true
	}
}

// open decodes one block, the i-th of its kind.
func (d *decoder) open(f field, b *hcl.Block, i int) {
	outer := d.path
	defer func() { d.path = outer }()
	d.path = append(slices.Clone(outer), f.name)
	switch {
	case len(b.Labels) > 0:
		d.path = append(d.path, b.Labels...)
	case f.repeated:
		d.path = append(d.path, strconv.Itoa(i))
	}
	d.places.note(b.DefRange, d.path...)
	f.open(d, b)
}

func (d *decoder) fail(at hcl.Range, summary, detail string) {
	d.diags = append(d.diags, problem(at, summary, detail)...)
}

// value evaluates an expression and demands its type as written: nothing is converted, so memory = 128 is not "128".
func (d *decoder) value(attr *hcl.Attribute, want cty.Type, example string) (cty.Value, bool) {
	v, diags := attr.Expr.Value(d.variables)
	d.diags = append(d.diags, diags...)
	if diags.HasErrors() {
		return v, false
	}
	if v.IsNull() || !v.IsWhollyKnown() || !v.Type().Equals(want) {
		d.fail(attr.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes %s, such as %s.", attr.Name, typeName(want), example))
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

func text(name string, to *string, needed ...bool) field {
	return field{name: name, kind: "text", required: len(needed) > 0, set: func(d *decoder, a *hcl.Attribute) {
		if v, ok := d.value(a, cty.String, name+` = "..."`); ok {
			*to = v.AsString()
		}
	}}
}

// word is a text that is kept as a named type: a role, a mode, a class.
func word[T ~string](name string, to *T) field {
	return field{name: name, kind: "text", set: func(d *decoder, a *hcl.Attribute) {
		if v, ok := d.value(a, cty.String, name+` = "..."`); ok {
			*to = T(v.AsString())
		}
	}}
}

func flag(name string, to *bool) field {
	return field{name: name, kind: "true or false", set: func(d *decoder, a *hcl.Attribute) {
		if v, ok := d.value(a, cty.Bool, name+` = true`); ok {
			*to = v.True()
		}
	}}
}

func number[T ~int | ~int64](name string, to *T, needed ...bool) field {
	return field{name: name, kind: "whole number", required: len(needed) > 0, set: func(d *decoder, a *hcl.Attribute) {
		v, ok := d.value(a, cty.Number, name+` = 1`)
		if !ok {
			return
		}
		n, accuracy := v.AsBigFloat().Int64()
		if accuracy != big.Exact || n < -1<<31 || n > 1<<31 {
			d.fail(a.Expr.Range(), "Not a whole number", fmt.Sprintf("%s takes a whole number, such as 1.", name))
			return
		}
		*to = T(n)
	}}
}

func duration(name string, set func(model.Duration)) field {
	return field{name: name, kind: "duration", set: func(d *decoder, a *hcl.Attribute) {
		v, ok := d.value(a, cty.String, name+` = "30s"`)
		if !ok {
			return
		}
		parsed, err := model.ParseDuration(v.AsString())
		if err != nil {
			d.fail(a.Expr.Range(), "Not a duration", fmt.Sprintf("%s: %v.", name, err))
			return
		}
		set(parsed)
	}}
}

func durationTo(name string, to *model.Duration) field {
	return duration(name, func(v model.Duration) { *to = v })
}

// rate is how many stops an actor may begin in a window: "5/1m", or "none".
func rate(name string, to *model.ActorRate) field {
	return field{name: name, kind: "rate", set: func(d *decoder, a *hcl.Attribute) {
		if v, ok := d.value(a, cty.String, name+` = "5/1m"`); ok {
			if err := to.UnmarshalText([]byte(v.AsString())); err != nil {
				d.fail(a.Expr.Range(), "Not a rate", fmt.Sprintf("%s: %v.", name, err))
			}
		}
	}}
}

// uidRange is the first and the last of a range of user ids, "2000000-2065535", or "off".
func uidRange(name string, first, last *int, off *bool) field {
	return field{name: name, kind: "range", set: func(d *decoder, a *hcl.Attribute) {
		v, ok := d.value(a, cty.String, name+` = "2000000-2065535"`)
		if !ok {
			return
		}
		if *off = v.AsString() == "off"; *off {
			*first, *last = 0, 0
			return
		}
		low, high, _ := strings.Cut(v.AsString(), "-")
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || from <= nobody || to > 1<<31-2 || to-from < leastUIDs-1 {
			d.fail(a.Expr.Range(), "Not a range of user ids", fmt.Sprintf("%s: write FIRST-LAST, above %d and of at least %d user ids, such as \"2000000-2065535\", or \"off\".", name, nobody, leastUIDs))
			return
		}
		*first, *last = from, to
	}}
}

const (
	nobody    = 65534 // below it are the accounts of the machine
	leastUIDs = 1000  // the more there are, the later one is used again
)

func size(name string, to *int64) field {
	return field{name: name, kind: "size", set: func(d *decoder, a *hcl.Attribute) {
		v, ok := d.value(a, cty.String, name+` = "128MiB"`)
		if !ok {
			return
		}
		bytes, err := ParseSize(v.AsString())
		if err != nil {
			d.fail(a.Expr.Range(), "Not a size", fmt.Sprintf("%s: %v.", name, err))
			return
		}
		*to = bytes
	}}
}

func texts(name string, to *[]string, needed ...bool) field {
	return field{name: name, kind: "list of texts", required: len(needed) > 0, set: func(d *decoder, a *hcl.Attribute) {
		v, diags := a.Expr.Value(d.variables)
		d.diags = append(d.diags, diags...)
		if diags.HasErrors() {
			return
		}
		if v.IsNull() || !v.Type().IsTupleType() && !v.Type().IsListType() {
			d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes a list of texts, such as %s = [\"a\", \"b\"].", name, name))
			return
		}
		list := []string{}
		for _, item := range v.AsValueSlice() {
			if item.IsNull() || item.Type() != cty.String {
				d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("Every element of %s must be a text in quotes.", name))
				return
			}
			list = append(list, item.AsString())
		}
		*to = list
	}}
}

func textMap(name string, to *map[string]string) field {
	return field{name: name, kind: "map of texts", set: func(d *decoder, a *hcl.Attribute) {
		v, diags := a.Expr.Value(d.variables)
		d.diags = append(d.diags, diags...)
		if diags.HasErrors() {
			return
		}
		if v.IsNull() || !v.Type().IsObjectType() && !v.Type().IsMapType() {
			d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes a map of texts, such as %s = { KEY = \"value\" }.", name, name))
			return
		}
		m := map[string]string{}
		for key, item := range v.AsValueMap() {
			if item.IsNull() || item.Type() != cty.String {
				d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("The value of %s in %s must be a text in quotes.", key, name))
				return
			}
			m[key] = item.AsString()
		}
		*to = m
	}}
}

// numberMap is a map of whole numbers, such as rlimits = { nofile = 4096 }.
func numberMap(name string, to *map[string]uint64) field {
	return field{name: name, kind: "map of whole numbers", set: func(d *decoder, a *hcl.Attribute) {
		v, diags := a.Expr.Value(d.variables)
		d.diags = append(d.diags, diags...)
		if diags.HasErrors() {
			return
		}
		m := map[string]uint64{}
		if !v.IsNull() && (v.Type().IsObjectType() || v.Type().IsMapType()) {
			for key, item := range v.AsValueMap() {
				if item.IsNull() || item.Type() != cty.Number {
					d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("The value of %s in %s must be a number.", key, name))
					return
				}
				m[key], _ = item.AsBigFloat().Uint64()
			}
			*to = m
			return
		}
		d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes a map of numbers, such as %s = { nofile = 4096 }.", name, name))
	}}
}

func block(name string, open func(*decoder, *hcl.Block)) field { return field{name: name, open: open} }

// blocksOf is a block that may stand more than once; with a label, once for each.
func blocksOf(name string, labels []string, open func(*decoder, *hcl.Block)) field {
	return field{name: name, labels: labels, repeated: true, open: open}
}

// directories takes a list of absolute paths; [] is kept apart from what is not there.
func directories(name string, to *[]string) field {
	var list []string
	f := texts(name, &list)
	f.set = func(d *decoder, a *hcl.Attribute) {
		before := len(d.diags)
		texts(name, &list).set(d, a)
		for _, dir := range list {
			if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
				d.fail(a.Expr.Range(), "Not a directory", fmt.Sprintf("%s takes whole paths, such as %s = [\"/data\"]; %q is none.", name, name, dir))
			}
		}
		if len(d.diags) == before {
			*to = list
		}
	}
	return f
}
