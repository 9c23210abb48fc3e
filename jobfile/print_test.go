package jobfile

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// pieces are parts of strings that HCL could misread.
var pieces = []string{
	"a", "é", " ", "\"", "\\", "\\a", "\n", "\r", "\t", "\x00", "\x1b", "\x7f", "\u00a0", "$", "%", "{", "}", "${",
	"%{", "$${", "${x}", "${slot}",
	"${node.id}", "😀", "\U0010fffd", "#", "//", "<<EOT",
}

// generator makes values in which no field is zero, so that the test notices a field that has no key in job files.
type generator struct {
	rand  *rand.Rand
	count int
}

// text returns another string on each call.
func (g *generator) text() string {
	g.count++
	text := fmt.Sprintf("t%d", g.count)
	for range g.rand.IntN(6) {
		text += pieces[g.rand.IntN(len(pieces))]
	}
	return text
}

func (g *generator) fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[model.Duration]() {
		v.SetInt(1 + g.rand.Int64N(1<<40))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(g.text())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(1 + g.rand.Int64N(65535)) // small enough for a port
	case reflect.Int64:
		v.SetInt(1 + g.rand.Int64N(1<<31))
	case reflect.Uint64:
		v.SetUint(g.rand.Uint64())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		g.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+g.rand.IntN(3), 3))
		for i := range v.Len() {
			g.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + g.rand.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			g.fill(key)
			g.fill(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			g.fill(v.Field(i))
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

// If a job is printed as a file and read again, every field keeps its value.
func TestPrintKeepsEveryField(t *testing.T) {
	for seed := range uint64(100) {
		g := &generator{rand: rand.New(rand.NewPCG(seed, 0))}
		var spec model.JobSpec
		g.fill(reflect.ValueOf(&spec).Elem())
		spec.Class = "batch" // a plain name, because templates such as "${slot}" are only read inside groups
		// Print must not escape the template of a port, not even after another $.
		group := &spec.Groups[0]
		group.Ports[0].Name = "http"
		group.Exec.Args = append(group.Exec.Args, "$${port.http}"+g.text())
		if seed%3 == 0 {
			group.Role, group.Count = model.RoleSystem, 1
		}
		text, err := Print(spec)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back, _, err := decode("back.hcl", []byte(text))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		if diff := cmp.Diff(spec, back); diff != "" {
			t.Fatalf("seed %d: the job of the file differs (-printed +read):\n%s\n%s", seed, diff, text)
		}
	}
}

// Zero values are kept too. Print may omit their keys, because a key that is missing from the file is read as zero.
func TestPrintKeepsDefaults(t *testing.T) {
	spec := model.JobSpec{Name: "web", Groups: []model.GroupSpec{{
		Name: "http", Exec: model.ExecSpec{Command: "/bin/web"}, Ports: []model.PortSpec{{Name: "http"}},
		Hooks:     []model.HookSpec{{Name: "before_stop", Exec: []string{"/bin/bye"}}},
		Budget:    &model.BudgetSpec{Rate: &model.RateSpec{}},
		Exclusive: &model.ExclusiveSpec{}, Peers: &model.PeersSpec{}, RoleCheck: &model.RoleCheckSpec{},
		Checks: []model.CheckSpec{{Name: "alive"}},
	}}}
	for _, spec := range []model.JobSpec{spec, spec.Expand()} {
		text, err := Print(spec)
		if err != nil {
			t.Fatal(err)
		}
		back, _, err := decode("back.hcl", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(spec, back); diff != "" {
			t.Errorf("the job of the file differs (-printed +read):\n%s\n%s", diff, text)
		}
	}
}

// The keys that jobfile gives to hclfile.PrintFirst are printed first. hclfile.Keys still returns all keys in the order
// of the reference.
func TestPrintOrder(t *testing.T) {
	text, err :=
		Print(model.JobSpec{Name: "web",
			Groups: []model.GroupSpec{
				{Name: "http", Hooks: []model.HookSpec{{Name: "after_start"}}, Exclusive: &model.ExclusiveSpec{}}}})
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, key := range []string{"count ", "exclusive {", "exec {", "resources {", "hook ", "stop {", "toleration {"} {
		i := strings.Index(text, key)
		if i < at {
			t.Errorf("%q stands at %d, after %d:\n%s", key, i, at, text)
		}
		at = i
	}
	var groups []string
	for _, k := range hclfile.Keys(jobKeys(&model.JobSpec{})...) {
		if strings.Count(k.Path, ".") == 2 && k.Type == "block" {
			groups = append(groups, strings.TrimPrefix(k.Path, "job.group."))
		}
	}
	if len(groups) < 20 || groups[len(groups)-1] != "hook" {
		t.Errorf("blocks of the reference: %v", groups)
	}
}

// A printed job is read back as the same job, whatever its strings contain.
func TestPrintKeepsTexts(t *testing.T) {
	spec := model.JobSpec{Name: "j", Groups: []model.GroupSpec{{
		Name: "g", Count: 1, Env: map[string]string{"TEXT": "a\tb\x07\b\"\\ ü ${HOME} $${x} %{if} ${port.p} ${slot}"},
		Exec:  model.ExecSpec{Command: "/bin/x", Args: []string{"${port.p}", "${node.name}", "$", "%", "${"}},
		Ports: []model.PortSpec{{Name: "p"}},
	}}}.Expand()
	text, err := Print(spec)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse("back.hcl", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if diff := cmp.Diff(spec, back.Expand()); diff != "" {
		t.Errorf("-want +got\n%s\n%s", diff, text)
	}
}
