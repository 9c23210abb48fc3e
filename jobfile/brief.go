package jobfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// PrintBrief returns spec as a job file that leaves out what JobSpec.Expand fills in anyway. It keeps the count and the
// resources of each group, because people look for them. Parsing the file and expanding the result gives spec.Expand().
func PrintBrief(spec model.JobSpec) (string, error) {
	full := spec.Expand()
	want, err := json.Marshal(full)
	if err != nil {
		return "", fmt.Errorf("encode job %s: %w", spec.Name, err)
	}
	var brief model.JobSpec // a copy that shares nothing with spec
	if err := json.Unmarshal(want, &brief); err != nil {
		return "", fmt.Errorf("copy job %s: %w", spec.Name, err)
	}
	if brief.Class == model.ClassProduction {
		brief.Class = ""
	}
	for i := range brief.Groups {
		shorten(&brief.Groups[i])
	}
	p := hclfile.Printer{Filled: filledIn, Zero: func(name string) bool { return name == "count" }}
	text, err := p.Print(jobKeys(&brief)...)
	if err == nil {
		if back, _, failed := decode(string(spec.Name), []byte(text)); failed == nil {
			if got, failed := json.Marshal(back.Expand()); failed == nil && bytes.Equal(got, want) {
				return text, nil
			}
		}
	}
	return Print(full) // it states everything, so nothing depends on what Expand fills in
}

// shorten sets to zero each value of an expanded group that Expand would fill in again.
func shorten(g *model.GroupSpec) {
	expanded := func() string {
		one := model.JobSpec{Groups: []model.GroupSpec{*g}}
		text, err := json.Marshal(one.Expand())
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	want := expanded()
	same := func() bool { return expanded() == want }
	v := reflect.ValueOf(g).Elem()
	for i := range v.NumField() {
		switch v.Type().Field(i).Name {
		case "Name", "Count", "Resources":
		default:
			drop(v.Field(i), same)
		}
	}
}

// drop sets v to zero if that changes nothing, and otherwise the parts of v for which that holds.
func drop(v reflect.Value, same func() bool) {
	if v.IsZero() {
		return
	}
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	v.SetZero()
	if same() {
		return
	}
	v.Set(old)
	switch v.Kind() {
	case reflect.Pointer:
		drop(v.Elem(), same)
	case reflect.Struct:
		for i := range v.NumField() {
			drop(v.Field(i), same)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				drop(v.Index(i), same)
			}
		}
	}
}
