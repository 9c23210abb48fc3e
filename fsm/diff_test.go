package fsm

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

func TestDiffNamesRowsAndFields(t *testing.T) {
	a := NewState().fork()
	a.Index = 7
	a.Nodes.put("n1",
		&Node{ID: "n1", Name: "one", Agent: model.AgentInfo{Key: []byte("first")},
			Shape: model.NodeShape{Labels: map[string]string{"rack": "r1", "a.b": "x"}}})
	a.Nodes.put("n2", &Node{ID: "n2"})
	a.Instances.put("i", &Instance{ID: "i", Links: Links{Awaits: []model.InstanceID{"x", "y"}}})
	a.Drains.put("d", &Drain{ID: "d", Nodes: []DrainNode{{Node: "n1"}, {Node: "n2"}}})
	b := a.fork()
	b.Index, b.Settings.OfflineAfter = 8, 90*model.Second
	b.Nodes.put("n1",
		&Node{ID: "n1", Name: "two", Agent: model.AgentInfo{Key: []byte("second")},
			Shape: model.NodeShape{Labels: map[string]string{"rack": "r1", "a.b": "y", "new": "z"}}})
	b.Nodes.del("n2")
	b.Nodes.put("n3", &Node{ID: "n3"})
	b.Instances.put("i", &Instance{ID: "i", Links: Links{Awaits: []model.InstanceID{"y"}}})
	b.Drains.put("d", &Drain{ID: "d", Nodes: []DrainNode{{Node: "n1"}, {Node: "n2", LastError: "oops"}}})

	got := Diff(a.publish(), b.publish())
	short := map[string]Change{}
	fields := map[string][2]any{}
	for _, c := range got {
		short[c.Table+"/"+c.Key] = c.Change
		if c.Change == RowChanged {
			for _, f := range c.Fields {
				fields[c.Table+"/"+c.Key+" "+f.Path] = [2]any{f.Before, f.After}
			}
		}
	}
	if diff := cmp.Diff(map[string]Change{
		"scalars/": RowChanged, "nodes/n1": RowChanged, "nodes/n2": RowRemoved, "nodes/n3": RowAdded,
		"instances/i": RowChanged, "drains/d": RowChanged,
	}, short); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][2]any{
		"scalars/ index":                  {uint64(7), uint64(8)},
		"scalars/ settings.offline_after": {"1m", "1m30s"},
		"nodes/n1 name":                   {"one", "two"},
		"nodes/n1 agent.key":              {Hidden, "(another secret)"},
		`nodes/n1 shape.labels["a.b"]`:    {"x", "y"},
		"nodes/n1 shape.labels.new":       {nil, "z"},
		"instances/i links.awaits":        {[]any{"x", "y"}, []any{"y"}},
		"drains/d nodes[1].last_error":    {"", "oops"},
	}, fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// Diff finds no difference between two equal states. It finds differences in exactly those tables whose digests differ.
func TestDiffAndDigestsAgree(t *testing.T) {
	full, empty := sampleState(), NewState()
	if got := Diff(full, sampleState()); len(got) > 0 {
		t.Errorf("two equal states differ: %+v", got)
	}
	tables := map[string]bool{}
	for _, c := range Diff(empty, full) {
		tables[c.Table] = true
	}
	old, now := TableDigests(empty), TableDigests(full)
	if len(now) != len(TableNames()) {
		t.Fatalf("%d digests, %d tables", len(now), len(TableNames()))
	}
	for i := range now {
		rows, ok := full.Rows(now[i].Name)
		n := 0
		for range rows {
			n++
		}
		if !ok || n != now[i].Rows {
			t.Errorf("table %s: %d rows, its digest says %d", now[i].Name, n, now[i].Rows)
		}
		if differs := old[i].Digest != now[i].Digest; differs != tables[now[i].Name] || !differs {
			t.Errorf("table %s: digests differ %v, rows differ %v", now[i].Name, differs, tables[now[i].Name])
		}
	}
}

// Diff finds a change of any single field of any row. The path that it reports begins with the field's name.
func TestDiffSeesEveryField(t *testing.T) {
	for _, r := range rowTypes() {
		filled := reflect.New(r.row).Elem()
		sample(filled, "x", 1)
		for _, f := range fieldsOf(r.row) {
			other := reflect.New(r.row).Elem()
			other.Set(filled)
			other.FieldByIndex(f.Index).SetZero()
			got := diffRows(filled.Interface(), other.Interface())
			if len(got) == 0 {
				t.Errorf("%s.%s: a difference is not seen", r.name, f.Name)
			}
			for _, c := range got {
				if !strings.HasPrefix(c.Path, nameOf(f)) {
					t.Errorf("%s.%s is called %s", r.name, f.Name, c.Path)
				}
			}
		}
	}
}

// Describe turns every command into JSON with all fields of its struct. Objects names an object for every command from
// kind 10 on, and none for the others and for agents.found.
func TestDescribeEveryCommand(t *testing.T) {
	for _, info := range kinds {
		c := sampleCommand(info)
		raw, err := json.Marshal(Describe(c))
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatalf("%s: %v in %s", info.name, err, raw)
		}
		for _, f := range fieldsOf(reflect.TypeOf(c).Elem()) {
			if _, ok := back[nameOf(f)]; !ok {
				t.Errorf("%s: there is no %s in %s", info.name, nameOf(f), raw)
			}
		}
		about := info.kind >= 10 && info.name != "agents.found" // which is about the agents of all nodes
		if objects := Objects(c); about != (len(objects) > 0) {
			t.Errorf("%s is about %v", info.name, objects)
		}
	}
}

// suspicious lists words with which the names of secret fields often end.
var suspicious = []string{"key", "token", "secret", "password", "env", "credential"}

// Every field whose name or type looks like that of a secret is marked as a secret. Describe and Diff never show marked
// fields.
func TestSecretsAreHidden(t *testing.T) {
	harmless := map[string]bool{
		"Event.Key": true,
		// hashes of public keys, certificates, and ids of tokens
		"TrustMember.Key": true, "TrustMember.PreviousKey": true, "MemberAdmit.Key": true, "MemberRenew.Key": true,
		"MemberRenew.Old": true, "TrustKey.Public": true, "KeyPut.Public": true, "TrustMember.Token": true,
		"MemberAdmit.Token": true, "MemberFound.Key": true, "TrustMember.AnyKey": true,
		"TrustMember.Roots": true, "TrustMember.Gossip": true, "MemberHolds.Roots": true, "MemberHolds.Gossip": true,
		"Person.Key": true, "PersonAdmit.Key": true,
		"Newcomer.Server": true, "Newcomer.Agent": true, "Newcomer.Token": true, "NewcomerWait.Server": true,
		"NewcomerWait.Agent": true, "NewcomerWait.Token": true, "NewcomerApprove.Key": true, "NewcomerReject.Key": true,
	}
	seen := map[reflect.Type]bool{}
	marked := 0
	var walk func(t reflect.Type)
	check := func(in reflect.Type, f reflect.StructField) {
		name := in.Name() + "." + f.Name
		looks := f.Type == reflect.TypeFor[[]byte]()
		for _, word := range suspicious {
			looks = looks || strings.EqualFold(f.Name, word) || strings.HasSuffix(strings.ToLower(f.Name), word)
		}
		if isSecret(f) {
			marked++
		} else if looks && !harmless[name] {
			t.Errorf("%s looks like a secret: mark it with debug:\"secret\", or list it here as harmless", name)
		}
	}
	walk = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		for _, f := range fieldsOf(typ) {
			check(typ, f)
			if inner, ok := structIn(f.Type); ok {
				walk(inner)
			}
		}
	}
	for _, r := range rowTypes() {
		walk(r.row)
	}
	for _, info := range kinds {
		walk(reflect.TypeOf(info.make()).Elem())
	}
	if marked < 4 {
		t.Errorf("only %d fields are marked as secrets", marked)
	}

	const secret = "hunter2"
	spec := model.JobSpec{Name: "web", Groups: []model.GroupSpec{{Name: "g", Env: map[string]string{"PASSWORD": secret}}}}
	a := NewState().fork()
	b := a.fork()
	b.Nodes.put("n", &Node{ID: "n", Agent: model.AgentInfo{Key: []byte(secret)}})
	b.Transfers.put("t", &Transfer{ID: "t", Token: secret})
	b.Versions.put("web/1", &JobVersion{Job: "web", Spec: spec})
	for _, shown := range []any{
		Describe(&NodeRegister{Agent: model.AgentInfo{Key: []byte(secret)}}), Describe(&TransferStart{Token: secret}),
		Describe(&JobSubmit{Spec: spec}),
		Diff(*a, *b), Diff(*b, *a),
		diffRows(JobVersion{Spec: spec},
			JobVersion{Spec: model.JobSpec{Groups: []model.GroupSpec{{Name: "g", Env: map[string]string{"PASSWORD": "x"}}}}}),
	} {
		raw, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), secret) || strings.Contains(string(raw), "68756e74") ||
			strings.Contains(string(raw), "aHVudGVy") {
			t.Errorf("a secret is shown: %s", raw)
		}
		if !strings.Contains(string(raw), Hidden) {
			t.Errorf("nothing says that there is a secret: %s", raw)
		}
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{"ID": "id", "BootID": "boot_id", "APIAddress": "api_address",
		"MemoryBytes": "memory_bytes", "CPU": "cpu", "FactsGen": "facts_gen"} {
		if got := snake(name); got != want {
			t.Errorf("snake(%s) = %s, want %s", name, got, want)
		}
	}
}

func TestObjects(t *testing.T) {
	for _, tt := range []struct {
		c    Command
		want string
	}{
		{&NodeReport{ID: "n1", Instances: []model.InstanceStatus{{ID: "a"}, {ID: "b"}}}, "node/n1 instance/a instance/b"},
		{&InstancePlace{ID: "i", Group: "web/http", Node: "n1", Replaces: "j"},
			"instance/i group/web/http node/n1 instance/j"},
		{&JobSubmit{Spec: model.JobSpec{Name: "web"}}, "job/web"},
		{&DrainStart{ID: "d", Nodes: []string{"n1", "n2"}}, "drain/d node/n1 node/n2"},
		{&SettingsSet{}, ""},
	} {
		if got := strings.Join(Objects(tt.c), " "); got != tt.want {
			t.Errorf("%s is about %q, want %q", KindName(tt.c.Kind()), got, tt.want)
		}
	}
}
