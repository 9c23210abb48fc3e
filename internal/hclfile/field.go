package hclfile

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/outspan/outspan/model"
)

// Attribute is an attribute that is decoded by calling set. kind describes the values for people. The attribute is
// never printed.
func Attribute(name, kind string, set func(*Decoder, *hcl.Attribute)) Field {
	return Field{name: name, kind: kind, set: set}
}

// printed is like Attribute, but also prints the attribute, with the expression that value returns. It prints nothing
// if the expression is "".
func printed(name, kind string, set func(*Decoder, *hcl.Attribute), value func(*Printer) string) Field {
	f := Attribute(name, kind, set)
	f.emit = func(p *Printer) {
		if text := value(p); text != "" {
			p.attribute(name, text)
		}
	}
	return f
}

// Text is an attribute that takes a string. An empty string is not printed.
func Text[T ~string](name string, to *T) Field {
	return printed(name, "text", func(d *Decoder, a *hcl.Attribute) {
		if v, ok := d.Text(a, name+` = "..."`); ok {
			*to = T(v)
		}
	}, func(p *Printer) string { return p.unlessEmpty(string(*to)) })
}

// Text evaluates an attribute that takes a string. If the value is not a string, Text adds a mistake that quotes
// example, and returns false.
func (d *Decoder) Text(a *hcl.Attribute, example string) (string, bool) {
	v, ok := d.value(a, cty.String, example)
	if !ok {
		return "", false
	}
	return v.AsString(), true
}

// Flag is an attribute that takes true or false.
func Flag(name string, to *bool) Field {
	return printed(name, "true or false", func(d *Decoder, a *hcl.Attribute) {
		if v, ok := d.Flag(a, name+` = true`); ok {
			*to = v
		}
	}, func(p *Printer) string {
		if p.zero(name, !*to) {
			return ""
		}
		return strconv.FormatBool(*to)
	})
}

// Flag evaluates an attribute that takes true or false. For any other value it adds a mistake that quotes example, and
// ok is false.
func (d *Decoder) Flag(a *hcl.Attribute, example string) (value, ok bool) {
	v, ok := d.value(a, cty.Bool, example)
	return ok && v.True(), ok
}

// Number is an attribute that takes a whole number that fits into an int32.
func Number[T ~int | ~int64](name string, to *T) Field {
	return printed(name, "whole number", func(d *Decoder, a *hcl.Attribute) {
		v, ok := d.value(a, cty.Number, name+` = 1`)
		if !ok {
			return
		}
		n, accuracy := v.AsBigFloat().Int64()
		if accuracy != big.Exact || n < math.MinInt32 || n > math.MaxInt32 {
			d.Fail(a.Expr.Range(), "Not a whole number", fmt.Sprintf("%s takes a whole number, such as 1.", name))
			return
		}
		*to = T(n)
	}, func(p *Printer) string {
		if p.zero(name, *to == 0) {
			return ""
		}
		return strconv.FormatInt(int64(*to), 10)
	})
}

// Duration is an attribute that takes a duration, such as "30s".
func Duration(name string, to *model.Duration) Field {
	return printed(name, "duration", func(d *Decoder, a *hcl.Attribute) { d.duration(a, to) }, func(p *Printer) string {
		if p.zero(name, *to == 0) {
			return ""
		}
		return p.quoted(to.String())
	})
}

// OptionalDuration is like Duration, but *to may be nil. If the attribute is missing, *to stays unchanged. If *to is
// nil, the attribute is not printed.
func OptionalDuration(name string, to **model.Duration) Field {
	return printed(name, "duration", func(d *Decoder, a *hcl.Attribute) {
		*to = new(model.Duration)
		d.duration(a, *to)
	}, func(p *Printer) string {
		if *to == nil {
			return ""
		}
		return p.quoted((*to).String())
	})
}

func (d *Decoder) duration(a *hcl.Attribute, to *model.Duration) {
	v, ok := d.Text(a, a.Name+` = "30s"`)
	if !ok {
		return
	}
	parsed, err := model.ParseDuration(v)
	if err != nil {
		d.Fail(a.Expr.Range(), "Not a duration", fmt.Sprintf("%s: %v.", a.Name, err))
		return
	}
	*to = parsed
}

// Size is an attribute that takes a number of bytes with a unit, such as "128MiB".
func Size(name string, to *int64) Field {
	return printed(name, "size", func(d *Decoder, a *hcl.Attribute) {
		v, ok := d.Text(a, name+` = "128MiB"`)
		if !ok {
			return
		}
		bytes, err := model.ParseSize(v)
		if err != nil {
			d.Fail(a.Expr.Range(), "Not a size", fmt.Sprintf("%s: %v.", name, err))
			return
		}
		*to = bytes
	}, func(p *Printer) string {
		if p.zero(name, *to == 0) {
			return ""
		}
		return p.quoted(sizeExact(*to))
	})
}

// sizeExact formats a number of bytes in the largest unit that leaves no remainder.
func sizeExact(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n > 0 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// Texts is an attribute that takes a list of strings. An empty list is not printed.
func Texts[T ~string](name string, to *[]T) Field {
	return printed(name, "list of texts", func(d *Decoder, a *hcl.Attribute) {
		if list, ok := d.Texts(a); ok {
			*to = asTexts[T](list)
		}
	}, func(p *Printer) string { return p.list(asTexts[string](*to)) })
}

// Texts evaluates an attribute that takes a list of strings. For any other value it adds a mistake and returns false.
// For an empty list it returns an empty slice, not nil.
func (d *Decoder) Texts(a *hcl.Attribute) ([]string, bool) {
	v, ok := d.eval(a)
	if !ok {
		return nil, false
	}
	if v.IsNull() || !v.Type().IsTupleType() && !v.Type().IsListType() {
		d.Fail(a.Expr.Range(), "Wrong type",
			fmt.Sprintf("%s takes a list of texts, such as %s = [\"a\", \"b\"].", a.Name, a.Name))
		return nil, false
	}
	list := []string{}
	for _, item := range v.AsValueSlice() {
		if item.IsNull() || item.Type() != cty.String {
			d.Fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("Every element of %s must be a text in quotes.", a.Name))
			return nil, false
		}
		list = append(list, item.AsString())
	}
	return list, true
}

// asTexts converts the elements of a list to another string type.
func asTexts[T, S ~string](list []S) []T {
	out := make([]T, len(list))
	for i, one := range list {
		out[i] = T(one)
	}
	return out
}

// Names is an attribute that takes one name or a list of names. One name replaces *to, but a list is appended to *to.
func Names[T ~string](name string, to *[]T) Field {
	return printed(name, "name, or list of names", func(d *Decoder, a *hcl.Attribute) {
		v, ok := d.eval(a)
		if !ok {
			return
		}
		if !v.IsNull() && v.Type() == cty.String {
			*to = []T{T(v.AsString())}
			return
		}
		if v.IsNull() || !v.Type().IsTupleType() && !v.Type().IsListType() {
			d.Fail(a.Expr.Range(), "Wrong type",
				fmt.Sprintf("%s takes a name, %s = \"a\", or a list of names, %s = [\"a\", \"b\"].", name, name, name))
			return
		}
		list, _ := d.Texts(a)
		*to = append(*to, asTexts[T](list)...)
	}, func(p *Printer) string {
		if len(*to) == 1 {
			return p.unlessEmpty(string((*to)[0]))
		}
		return p.list(asTexts[string](*to))
	})
}

// Amount is an attribute that takes a number of instances, such as 2, or a percentage, such as "25%". A nil amount is
// not printed.
func Amount(name string, to **model.Amount) Field {
	return printed(name, "whole number or percentage", func(d *Decoder, a *hcl.Attribute) {
		v, ok := d.eval(a)
		if !ok {
			return
		}
		if !v.IsNull() && v.Type() == cty.Number {
			if n, exact := v.AsBigFloat().Int64(); exact == big.Exact {
				*to = &model.Amount{N: int(n)}
				return
			}
		}
		if !v.IsNull() && v.Type() == cty.String && strings.HasSuffix(v.AsString(), "%") {
			if n, err := strconv.Atoi(strings.TrimSuffix(v.AsString(), "%")); err == nil {
				*to = &model.Amount{N: n, Percent: true}
				return
			}
		}
		d.Fail(a.Expr.Range(), "Wrong type",
			fmt.Sprintf("%s takes a whole number of instances, such as 2, or a percentage, such as \"25%%\".", name))
	}, func(p *Printer) string {
		switch a := *to; {
		case a == nil:
			return ""
		case a.Percent:
			return p.quoted(fmt.Sprintf("%d%%", a.N))
		default:
			return strconv.Itoa(a.N)
		}
	})
}

// TextMap is an attribute that takes a map of strings. An empty map is not printed.
func TextMap(name string, to *map[string]string) Field {
	return printed(name, "map of texts", func(d *Decoder, a *hcl.Attribute) {
		v, ok := d.eval(a)
		if !ok {
			return
		}
		if v.IsNull() || !v.Type().IsObjectType() && !v.Type().IsMapType() {
			d.Fail(a.Expr.Range(), "Wrong type",
				fmt.Sprintf("%s takes a map of texts, such as %s = { KEY = \"value\" }.", name, name))
			return
		}
		m := map[string]string{}
		for key, item := range v.AsValueMap() {
			if item.IsNull() || item.Type() != cty.String {
				d.Fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("The value of %s in %s must be a text in quotes.", key, name))
				return
			}
			m[key] = item.AsString()
		}
		*to = m
	}, func(p *Printer) string {
		lines := ""
		for _, k := range slices.Sorted(maps.Keys(*to)) {
			lines += p.quoted(k) + " = " + p.quoted((*to)[k]) + "\n"
		}
		return object(lines)
	})
}

// NumberMap is an attribute that takes a map of whole numbers, such as { nofile = 4096 }. An empty map is not printed.
func NumberMap(name string, to *map[string]uint64) Field {
	return printed(name, "map of whole numbers", func(d *Decoder, a *hcl.Attribute) {
		v, ok := d.eval(a)
		if !ok {
			return
		}
		m := map[string]uint64{}
		if !v.IsNull() && (v.Type().IsObjectType() || v.Type().IsMapType()) {
			for key, item := range v.AsValueMap() {
				if item.IsNull() || item.Type() != cty.Number {
					d.Fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("The value of %s in %s must be a number.", key, name))
					return
				}
				n, accuracy := item.AsBigFloat().Uint64()
				if accuracy != big.Exact {
					d.Fail(a.Expr.Range(), "Not a whole number",
						fmt.Sprintf("The value of %s in %s must be a whole number that is not negative.", key, name))
					return
				}
				m[key] = n
			}
			*to = m
			return
		}
		d.Fail(a.Expr.Range(), "Wrong type",
			fmt.Sprintf("%s takes a map of numbers, such as %s = { nofile = 4096 }.", name, name))
	}, func(p *Printer) string {
		lines := ""
		for _, k := range slices.Sorted(maps.Keys(*to)) {
			key := k
			if !hclsyntax.ValidIdentifier(k) {
				key = p.quoted(k)
			}
			lines += key + " = " + strconv.FormatUint((*to)[k], 10) + "\n"
		}
		return object(lines)
	})
}

// object returns an HCL object with these lines, or "" if lines is empty.
func object(lines string) string {
	if lines == "" {
		return ""
	}
	return "{\n" + lines + "}"
}
