package cli

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/cli/term"
)

// A table requests all fields that its cells and the order of its rows need.
func TestTablesAskForWhatTheyShow(t *testing.T) {
	a := &app{Console: term.Console{Now: time.Now}}
	askForWhatTheyShow(t, a.nodeColumns(), byNodeName)
	askForWhatTheyShow(t, a.instanceColumns(), bySlot)
}

func askForWhatTheyShow[T any](t *testing.T, columns []term.Column[T], order func(x, y T) int) {
	var item T
	fill(reflect.ValueOf(&item).Elem())
	for _, wide := range []bool{false, true} {
		some := only(t, item, term.FieldsOf(columns, wide))
		if order(item, some) != 0 {
			t.Errorf("%T: the order of the rows needs more than %s", item, term.FieldsOf(columns, wide))
		}
		for _, c := range columns {
			if c.Wide && !wide {
				continue
			}
			if got, want := c.Cell(some), c.Cell(item); got != want {
				t.Errorf("%T: column %s shows %q, from the whole item %q", item, c.Head, got, want)
			}
			var zero T
			if c.Cell(item) == c.Cell(zero) {
				t.Errorf("%T: column %s shows %q for everything", item, c.Head, c.Cell(item))
			}
		}
	}
}

// only returns item as a client would decode it from an answer that has only the listed fields.
func only[T any](t *testing.T, item T, fields string) (some T) {
	t.Helper()
	raw, err := json.Marshal(item)
	var all map[string]any
	if err != nil || json.Unmarshal(raw, &all) != nil {
		t.Fatal(err)
	}
	for name := range all {
		if !slices.Contains(strings.Split(fields, ","), name) {
			delete(all, name)
		}
	}
	if raw, err = json.Marshal(all); err != nil || json.Unmarshal(raw, &some) != nil {
		t.Fatal(err)
	}
	return some
}

// fill sets every field to a value other than zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7 << 20)
	case reflect.Uint64:
		v.SetUint(7)
	case reflect.String:
		v.SetString("word")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Now().Add(-time.Hour).Round(time.Second).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}
