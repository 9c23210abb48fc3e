package fsm

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// Hidden replaces a secret in a description, such as a key, a token or the value of an environment variable.
const Hidden = "(secret)"

// Field is one named part of a described value.
type Field struct {
	Name  string
	Value any
}

// Fields are the named parts of a struct in the order of its fields, or of a map in the order of its keys.
type Fields []Field

// MarshalJSON returns a JSON object with its keys in the order of f.
func (f Fields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, field := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := enc.Encode(field.Name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := enc.Encode(field.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Describe turns a row or a command into plain values: nil, bool, int64, uint64, string, []any and Fields. A field is
// named by its json tag, or if it has none, by its Go name in snake case. Zero fields whose cbor tag has omitempty are
// omitted. Secrets are replaced by Hidden.
func Describe(v any) any { return describe(reflect.ValueOf(v)) }

func describe(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	if text, ok := leafText(v); ok {
		return text
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return describe(v.Elem())
	case reflect.Bool:
		return v.Bool()
	case reflect.String:
		return v.String()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return v.Uint()
	case reflect.Slice, reflect.Array:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = describe(v.Index(i))
		}
		return list
	case reflect.Map:
		fields := Fields{}
		for _, key := range mapKeys(v) {
			fields = append(fields, Field{fmt.Sprint(key.Interface()), describe(v.MapIndex(key))})
		}
		return fields
	case reflect.Struct:
		return describeStruct(v)
	}
	return fmt.Sprint(v.Interface())
}

func describeStruct(v reflect.Value) Fields {
	fields := Fields{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported(), v.Field(i).IsZero() && strings.Contains(f.Tag.Get("cbor"), "omitempty"):
		case isSecret(f):
			fields = append(fields, Field{nameOf(f), hide(v.Field(i))})
		default:
			fields = append(fields, Field{nameOf(f), describe(v.Field(i))})
		}
	}
	return fields
}

// leafText returns the text of a value that has a text form of its own, or false. A model.Time has one only if it is
// Never.
func leafText(v reflect.Value) (string, bool) {
	switch x := v.Interface().(type) {
	case model.Time:
		return "never", x == model.Never
	case EventKey:
		return x.String(), true
	case model.Subject:
		return x.String(), true
	case []byte:
		return hex.EncodeToString(x), true
	case encoding.TextMarshaler:
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return "", false
		}
		text, err := x.MarshalText()
		return string(text), err == nil
	}
	return "", false
}

// isSecret reports whether a field is marked as a secret, whose value must never be shown.
func isSecret(f reflect.StructField) bool { return f.Tag.Get("debug") == "secret" }

// hide returns what to show of a secret: Hidden, or "" if the secret is empty. The keys of a map are shown, each with
// Hidden as its value.
func hide(v reflect.Value) any {
	if v.Kind() == reflect.Map {
		fields := Fields{}
		for _, key := range mapKeys(v) {
			fields = append(fields, Field{fmt.Sprint(key.Interface()), Hidden})
		}
		return fields
	}
	if v.IsZero() {
		return ""
	}
	return Hidden
}

// mapKeys returns the keys of a map, sorted by their text.
func mapKeys(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		return cmp.Compare(fmt.Sprint(a.Interface()), fmt.Sprint(b.Interface()))
	})
	return keys
}

// nameOf returns the name in a field's json tag, or if there is none, the Go name in snake case.
func nameOf(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
		return name
	}
	return snake(f.Name)
}

// snake converts a Go name to snake case: BootID becomes boot_id, APIAddress becomes api_address.
func snake(name string) string {
	letters := []rune(name)
	var b strings.Builder
	for i, r := range letters {
		begins := i > 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if begins {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Objects lists the objects that a command is about, the main object first. Each is written like the subject of an
// event, such as "node/n1" or "instance/3k9f".
func Objects(c Command) []string {
	v := reflect.ValueOf(c)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	var found []string
	if start, ok := c.(*DrainStart); ok { // nounOf does not know its Nodes, which are strings: names or ids
		found = append(found, "drain/"+string(start.ID))
		for _, name := range start.Nodes {
			found = append(found, "node/"+name)
		}
		return found
	}
	for i := range v.NumField() {
		found = appendObjects(found, v.Field(i), true)
	}
	return found
}

func appendObjects(found []string, v reflect.Value, deeper bool) []string {
	if noun, id, ok := nounOf(v); ok {
		if subject := noun + "/" + id; id != "" && !slices.Contains(found, subject) {
			found = append(found, subject)
		}
		return found
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			found = appendObjects(found, v.Index(i), deeper)
		}
	case reflect.Struct:
		if deeper && v.NumField() > 0 {
			found = appendObjects(found, v.Field(0), false) // the first field of a spec or a status is its id
		}
	}
	return found
}

// nounOf returns the kind of object that the id v names, and the id as text. ok is false if v is no id.
func nounOf(v reflect.Value) (noun, id string, ok bool) {
	switch x := v.Interface().(type) {
	case model.Subject:
		return "member", x.String(), true
	case rights.RoleName:
		noun = "role"
	case model.NodeID:
		noun = "node"
	case model.JobName:
		noun = "job"
	case model.GroupID:
		noun = "group"
	case model.InstanceID:
		noun = "instance"
	case model.DrainID:
		noun = "drain"
	case model.DeploymentID:
		noun = "deployment"
	case model.VolumeID:
		noun = "volume"
	case model.TransferID:
		noun = "transfer"
	case model.BackupID:
		noun = "backup"
	case model.BudgetName:
		noun = "budget"
	case model.ClassName:
		noun = "class"
	case model.KeyName:
		noun = "key"
	case model.TokenID:
		noun = "token"
	default:
		return "", "", false
	}
	return noun, v.String(), true
}
