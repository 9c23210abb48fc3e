package httpapi

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// filter is a list of conditions that must all hold.
type filter []condition

// condition compares one field of an item.
type condition struct {
	path []string
	op   string // = != ~
	want string
}

// parseFilter parses conditions on the JSON fields of V, joined by commas. Code: invalid, also for a field that V does
// not have.
func parseFilter[V any](text string) (filter, error) {
	var f filter
	for term := range strings.SplitSeq(text, ",") {
		if term = strings.TrimSpace(term); term == "" {
			continue
		}
		c, ok := parseCondition(term)
		if !ok {
			return nil, model.Refuse(model.CodeInvalid, "filter: a condition is not field=value, field!=value or field~text").
				WithHint("for example: state=active,labels.rack=r1")
		}
		if err := checkPath(reflect.TypeFor[V](), c.path); err != nil {
			return nil, err
		}
		f = append(f, c)
	}
	return f, nil
}

func parseCondition(term string) (condition, bool) {
	i := strings.IndexAny(term, "=!~")
	if i <= 0 {
		return condition{}, false
	}
	c := condition{path: strings.Split(strings.TrimSpace(term[:i]), "."), op: term[i : i+1]}
	rest := term[i+1:]
	if c.op == "!" {
		if !strings.HasPrefix(rest, "=") {
			return condition{}, false
		}
		c.op, rest = "!=", rest[1:]
	}
	c.want = strings.TrimSpace(rest)
	return c, true
}

// checkPath returns an error if t has no such field. Without this check, a mistyped field would only give an empty
// list.
func checkPath(t reflect.Type, path []string) error {
	for _, name := range path {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Map:
			return nil // the remaining path is a key of the map
		case reflect.Struct:
		default:
			return model.Refuse(model.CodeInvalid, "filter: %q has no inner fields", clip(strings.Join(path, ".")))
		}
		fields := jsonFields(t)
		next, ok := fields[name]
		if !ok {
			return unknownName("filter", name, fields)
		}
		t = next
	}
	return nil
}

// unknownName returns the error for a query parameter that names an unknown field.
func unknownName(parameter, name string, fields map[string]reflect.Type) error {
	names := slices.Sorted(maps.Keys(fields))
	refusal := model.Refuse(model.CodeInvalid, "%s: there is no field %q", parameter, clip(name))
	if near := nearest(name, names); near != "" {
		return refusal.WithHint("did you mean %q?", near)
	}
	return refusal.WithHint("the fields are: %s", strings.Join(names, ", "))
}

func (f filter) match(item any) bool {
	for _, c := range f {
		if !c.match(reflect.ValueOf(item)) {
			return false
		}
	}
	return true
}

func (c condition) match(item reflect.Value) bool {
	got := fieldText(item, c.path)
	switch c.op {
	case "=":
		return got == c.want
	case "!=":
		return got != c.want
	}
	return strings.Contains(got, c.want)
}

// fieldText returns the text of a field as JSON would have it, but without quotes, and with the items of a list joined
// by blanks. It returns "" if the field is missing or has inner fields.
func fieldText(v reflect.Value, path []string) string {
	for i, name := range path {
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Map:
			v = v.MapIndex(reflect.ValueOf(strings.Join(path[i:], ".")).Convert(v.Type().Key()))
			return scalarText(v)
		case reflect.Struct:
			v = fieldNamed(v, name)
		default:
			return ""
		}
	}
	return scalarText(v)
}

func fieldNamed(v reflect.Value, name string) reflect.Value {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return v.Field(i)
		}
		if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
			if inner := fieldNamed(v.Field(i), name); inner.IsValid() {
				return inner
			}
		}
	}
	return reflect.Value{}
}

func scalarText(v reflect.Value) string {
	for v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() {
		return ""
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		if text, err := m.MarshalText(); err == nil {
			return string(text)
		}
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		return ""
	case reflect.Slice:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, scalarText(v.Index(i)))
		}
		return strings.Join(parts, " ")
	}
	return fmt.Sprint(v.Interface())
}

// nearest returns the name that is most similar to word, or "" if no name is similar enough: at most three letters, and
// at most a third of word's letters, may differ. It sorts names in place.
func nearest(word string, names []string) string {
	slices.Sort(names)
	best, most := "", min(len(word)/3, 3)+1
	for _, name := range names {
		if d := model.Distance(word, name); d < most {
			best, most = name, d
		}
	}
	return best
}
