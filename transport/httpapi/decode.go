package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/outspan/outspan/model"
)

// maxDepth limits the nesting in a request's body.
const maxDepth = 64

// decodeStrict decodes exactly one JSON value into v. It refuses unknown and duplicate fields, deep nesting, and text
// after the value. Its error names the field but not the value, which may be a secret. Code: invalid.
func decodeStrict(data []byte, v any) error {
	walk := json.NewDecoder(bytes.NewReader(data))
	walk.UseNumber()
	if err := checkValue(walk, reflect.TypeOf(v), "", 0); err != nil {
		return err
	}
	if _, err := walk.Token(); !errors.Is(err, io.EOF) {
		return model.Refuse(model.CodeInvalid, "there is text after the JSON value of the body")
	}
	return explainDecode(json.Unmarshal(data, v))
}

// checkValue checks the next value against the type that it will be decoded into. A nil t allows any value.
func checkValue(dec *json.Decoder, t reflect.Type, path string, depth int) error {
	if depth > maxDepth {
		return model.Refuse(model.CodeInvalid, "the body is nested more than %d deep", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return explainDecode(err)
	}
	switch tok {
	case json.Delim('{'):
		return checkObject(dec, shape(t), path, depth)
	case json.Delim('['):
		return checkArray(dec, shape(t), path, depth)
	}
	if text, ok := tok.(string); ok {
		return checkText(t, path, text)
	}
	return nil
}

// checkText refuses a string that t's UnmarshalText refuses. json.Unmarshal would refuse it too, but its error would
// not name the field.
func checkText(t reflect.Type, path, text string) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return nil
	}
	into, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler)
	if !ok || into.UnmarshalText([]byte(text)) == nil {
		return nil
	}
	return model.Refuse(model.CodeInvalid, "field %q must be %s", clip(path), jsonKind(t))
}

func checkArray(dec *json.Decoder, t reflect.Type, path string, depth int) error {
	var elem reflect.Type
	if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		elem = t.Elem()
	}
	for i := 0; dec.More(); i++ {
		if err := checkValue(dec, elem, fmt.Sprintf("%s[%d]", path, i), depth+1); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return explainDecode(err)
}

func checkObject(dec *json.Decoder, t reflect.Type, path string, depth int) error {
	var fields map[string]reflect.Type
	var elem reflect.Type
	if t != nil && t.Kind() == reflect.Struct {
		fields = jsonFields(t)
	} else if t != nil && t.Kind() == reflect.Map {
		elem = t.Elem()
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return explainDecode(err)
		}
		key, _ := tok.(string)
		at := strings.TrimPrefix(path+"."+key, ".")
		next := elem
		if fields != nil {
			known, ok := fields[key]
			if !ok {
				return unknownField(at, key, fields)
			}
			next = known
		}
		if seen[key] {
			return model.Refuse(model.CodeInvalid, "field %q is given twice", clip(at))
		}
		seen[key] = true
		if err := checkValue(dec, next, at, depth+1); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return explainDecode(err)
}

func unknownField(at, key string, fields map[string]reflect.Type) error {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	refusal := model.Refuse(model.CodeInvalid, "unknown field %q", clip(at))
	if near := nearest(key, names); near != "" {
		return refusal.WithHint("did you mean %q?", near)
	}
	return refusal.WithHint("the fields are listed in /openapi.json")
}

// shape returns t without pointers. It returns nil if t allows any JSON value or has its own decoding method.
func shape(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() == reflect.Interface {
		return nil
	}
	for _, own := range [...]reflect.Type{reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextUnmarshaler]()} {
		if reflect.PointerTo(t).Implements(own) {
			return nil
		}
	}
	return t
}

// jsonFields returns the fields of a struct by their JSON names, including those of embedded structs.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for inner, typ := range jsonFields(f.Type) {
				fields[inner] = typ
			}
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

// explainDecode describes a decoding error without quoting the value, which may be a secret.
func explainDecode(err error) error {
	if err == nil {
		return nil // this is called for each token, and refusedDecode allocates even for nil
	}
	return refusedDecode(err)
}

func refusedDecode(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var refusal *model.Error
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &syntax):
		return model.Refuse(model.CodeInvalid, "the body is not JSON: error at byte %d", syntax.Offset)
	case errors.As(err, &kind):
		return model.Refuse(model.CodeInvalid, "field %q must be %s, not %s", clip(kind.Field),
			jsonKind(kind.Type), kind.Value)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return model.Refuse(model.CodeInvalid, "the body ends in the middle of its JSON value")
	}
	return model.Refuse(model.CodeInvalid, "the body can't be decoded")
}

// jsonKind describes the JSON values that a type accepts.
func jsonKind(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[model.Duration]():
		return `a string with a number and a unit, such as "30s" or "5m"`
	case reflect.TypeFor[model.Amount]():
		return `a string with a number or a percentage, such as "2" or "50%"`
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number that is not negative"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	}
	return "something else"
}

// clip shortens a caller's string to 120 bytes for logs and answers.
func clip(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
