package fsm

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// sample sets v so that every field, at any depth, differs from zero. The value of a field depends only on the field's
// key and name, so a new field does not change the others in a golden file.
func sample(v reflect.Value, name string, key int64) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.ToLower(name) + "-é")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(-1000 * key)
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(uint64(key))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		sample(v.Elem(), name, key)
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[model.Ports]() { // encoded as a map, so the names must differ
			v.Set(reflect.ValueOf(model.Ports{{Name: "a", Number: -1000 * int(key+1)}, {Name: "b", Number: -1000 * int(key)},
				{Name: "longer", Number: -1000 * int(key+2)}}))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			sample(v.Index(i), fmt.Sprint(name, i), key+int64(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i, k := range []string{"b", "a", "longer"} {
			row := reflect.New(v.Type().Elem()).Elem()
			sample(row, name+k, key+int64(i))
			v.SetMapIndex(reflect.ValueOf(k).Convert(v.Type().Key()), row)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			sample(v.FieldByIndex(f.Index), f.Name, keyOf(f))
		}
	default:
		panic("no sample for " + v.Type().String())
	}
}

// arbitrary sets v to a random value. An empty list or map is always nil, because the encoding omits it either way.
func arbitrary(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int") >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint") >> (64 - v.Type().Bits()))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "present") {
			v.Set(reflect.New(v.Type().Elem()))
			arbitrary(t, v.Elem())
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 2).Draw(t, "len"); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				arbitrary(t, v.Index(i))
			}
		}
		if ports, ok := v.Interface().(model.Ports); ok {
			ports.Sorted()
			v.Set(reflect.ValueOf(slices.CompactFunc(ports, func(a, b model.Port) bool { return a.Name == b.Name })))
		}
	case reflect.Map:
		if n := rapid.IntRange(0, 2).Draw(t, "len"); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				key, row := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				arbitrary(t, key)
				arbitrary(t, row)
				v.SetMapIndex(key, row)
			}
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			arbitrary(t, v.FieldByIndex(f.Index))
		}
	default:
		panic("no arbitrary value for " + v.Type().String())
	}
}

// fieldsOf returns the encoded fields of a struct.
func fieldsOf(t reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("cbor") != "-" && f.Name != "_" {
			fields = append(fields, f)
		}
	}
	return fields
}

// keyOf returns the number that stands for a field in the encoding, or 0 if the field has no number.
func keyOf(f reflect.StructField) int64 {
	number, options, _ := strings.Cut(f.Tag.Get("cbor"), ",")
	key, err := strconv.ParseInt(number, 10, 64)
	if err != nil || key < 1 || !strings.Contains(","+options+",", ",keyasint,") {
		return 0
	}
	return key
}

// sampleCommand returns the sample of one kind of command for the golden files.
func sampleCommand(info kindInfo) Command {
	c := info.make()
	sample(reflect.ValueOf(c).Elem(), info.name, int64(info.kind))
	return c
}

// sampleEntry returns an entry with two groups. The first has a command of each kind, the second only one command.
func sampleEntry() Entry {
	e := Entry{Format: model.CurrentFormat, At: 1000, Wall: 1_700_000_000_000, Term: 3, Actor: "cli:alice",
		Request: "01JREQUEST", Body: "abc", Groups: [][]Command{nil, {}}}
	e.Groups[0] = []Command{}
	for _, info := range kinds {
		e.Groups[0] = append(e.Groups[0], sampleCommand(info))
	}
	e.Groups[1] = e.Groups[0][:1]
	return e
}

// sampleState returns a state with every scalar set and one row in each table. The rows don't fit together.
func sampleState() State {
	var meta metaRow
	sample(reflect.ValueOf(&meta).Elem(), "meta", 1)
	meta.Format, meta.Now, meta.Wall = model.CurrentFormat, 5000, 1_700_000_000_000
	s := meta.empty()
	putSample(&s.Nodes, func(n *Node) model.NodeID { return n.ID })
	putSample(&s.Jobs, func(j *Job) model.JobName { return j.Name })
	putSample(&s.Versions, func(v *JobVersion) string { return versionKey(v.Job, v.Version) })
	putSample(&s.Groups, func(g *Group) model.GroupID { return g.ID })
	putSample(&s.Instances, func(i *Instance) model.InstanceID { return i.ID })
	putSample(&s.Drains, func(d *Drain) model.DrainID { return d.ID })
	putSample(&s.Deployments, func(d *Deployment) model.DeploymentID { return d.ID })
	putSample(&s.Services, func(v *Service) model.ServiceName { return v.Name })
	putSample(&s.Volumes, func(v *Volume) model.VolumeID { return v.ID })
	event := sampleRow[Event]()
	s.Events.put(event.Key, event)
	putSample(&s.Requests, func(r *Request) model.RequestID { return r.ID })
	putSample(&s.Budgets, func(b *SharedBudget) model.BudgetName { return b.Name })
	putSample(&s.Actors, func(l *ActorLedger) model.StopOrigin { return l.Actor })
	putSample(&s.Transfers, func(t *Transfer) model.TransferID { return t.ID })
	putSample(&s.Backups, func(b *Backup) model.BackupID { return b.ID })
	putSample(&s.Rails, func(r *Rail) RailName { return r.Name })
	putSample(&s.TrustKeys, func(k *TrustKey) model.KeyName { return k.Name })
	putSample(&s.JoinTokens, func(t *JoinToken) model.TokenID { return t.ID })
	putSample(&s.TrustMembers, func(m *TrustMember) string { return m.Subject.String() })
	putSample(&s.People, func(p *Person) string { return p.Subject.Name })
	putSample(&s.Newcomers, (*Newcomer).rowKey)
	putSample(&s.Roles, func(r *RightsRole) rights.RoleName { return r.Name })
	putSample(&s.Bindings, (*RightsBinding).rowKey)
	putSample(&s.AccessTokens, func(t *AccessToken) model.TokenID { return t.ID })
	putSample(&s.Pulls, func(c *Pull) string { return slotPrefix(c.Group, c.Slot) })
	if err := s.buildIndexes(); err != nil {
		panic(err)
	}
	return s.publish()
}

func putSample[K ~string, V any](t *Table[K, *V], key func(*V) K) {
	row := sampleRow[V]()
	t.put(key(row), row)
}

func sampleRow[V any]() *V {
	row := new(V)
	sample(reflect.ValueOf(row).Elem(), reflect.TypeFor[V]().Name(), 1)
	return row
}
