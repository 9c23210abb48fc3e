package httpapi

import (
	"reflect"
	"strings"
)

// selection is the fields that a caller wants of each item of a list; a nil selection means all fields. A list of 5,000
// nodes takes a third of the time if only the fields that the command line shows are encoded, sent and decoded.
type selection struct {
	fields [][]int      // indexes in an item, for reflect.Value.FieldByIndex
	item   reflect.Type // a struct of only these fields
}

// parseSelection parses names of JSON fields of V, joined by commas. It returns nil if text is empty. Code: invalid for
// a field that V does not have.
func parseSelection[V any](text string) (*selection, error) {
	if text == "" {
		return nil, nil
	}
	all := reflect.TypeFor[V]()
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if known := jsonFields(all); known[name] == nil {
			return nil, unknownName("fields", name, known)
		}
		wanted[name] = true
	}
	s := &selection{}
	var fields []reflect.StructField
	for _, f := range reflect.VisibleFields(all) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); wanted[name] {
			s.fields = append(s.fields, f.Index)
			fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
		}
	}
	s.item = reflect.StructOf(fields)
	return s, nil
}

// of returns a slice of the items with only the selected fields.
func (s *selection) of(items reflect.Value) any {
	some := reflect.MakeSlice(reflect.SliceOf(s.item), items.Len(), items.Len())
	for i := range items.Len() {
		for to, from := range s.fields {
			some.Index(i).Field(to).Set(items.Index(i).FieldByIndex(from))
		}
	}
	return some.Interface()
}

// selected is implemented by answers that can omit fields.
type selected interface{ selected() any }

// selected returns the list as it is sent, with only the selected fields.
func (l List[V]) selected() any {
	if l.only == nil {
		return l
	}
	return struct {
		Items  any    `json:"items"`
		Index  uint64 `json:"index"`
		Next   string `json:"next,omitempty"`
		Hidden int    `json:"hidden,omitempty"`
	}{l.only.of(reflect.ValueOf(l.Items)), l.Index, l.Next, l.Hidden}
}
