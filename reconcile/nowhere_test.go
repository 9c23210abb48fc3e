package reconcile_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// fullWorld returns a cluster of ten nodes without room, with a job whose groups each want count instances. If change
// is not nil, it is called with the spec of each group.
func fullWorld(t testing.TB, groups, count int, change func(*model.GroupSpec)) *world {
	w := newWorld(t)
	w.quiet = true
	for i := range 10 {
		w.run(fmt.Sprintf("node n%d memory=1000MiB", i))
	}
	w.run("run full main count=10 memory=900MiB")
	w.run("decide")
	spec := model.JobSpec{Name: "web"}
	for i := range groups {
		g := model.GroupSpec{
			Name: fmt.Sprint("g", i), Count: count, Exec: model.ExecSpec{Command: "/bin/app"},
			Resources: model.Resources{MemoryBytes: 500 << 20},
		}
		if change != nil {
			change(&g)
		}
		spec.Groups = append(spec.Groups, g)
	}
	if refusal := w.apply("cli:ann", &fsm.JobSubmit{Spec: spec}); refusal != nil {
		t.Fatal(refusal)
	}
	return w
}

// If no instance of a large group fits anywhere, the plan has one refusal for the whole group. The decision allocates
// at most twice as much memory as for a group of two instances. The group still has a reason why it is pending.
func TestManyThatFitNowhereCostLittle(t *testing.T) {
	for name, change := range map[string]func(*model.GroupSpec){
		"plain":     nil,
		"exclusive": func(g *model.GroupSpec) { g.Exclusive = &model.ExclusiveSpec{} },
		"spread":    func(g *model.GroupSpec) { g.Spreads = []model.Spread{{Attribute: "node.name"}} },
		"distinct":  func(g *model.GroupSpec) { g.Distinct = []string{"node.id"} },
		"port":      func(g *model.GroupSpec) { g.Ports = []model.PortSpec{{Name: "http"}} },
		"local": func(g *model.GroupSpec) {
			g.Volumes = []model.VolumeSpec{{Name: "d", Kind: model.VolumeLocal, Path: "/d"}}
		},
		"replicated": func(g *model.GroupSpec) {
			g.Volumes = []model.VolumeSpec{{Name: "d", Kind: model.VolumeReplicated, Path: "/d"}}
			g.RoleCheck = &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			few, many := fullWorld(t, 4, 2, change), fullWorld(t, 4, 50_000, change)
			least, most := memoryOf(few.input()), memoryOf(many.input())
			if most > 2*least {
				t.Errorf("a decision over 4 groups of 2 takes %d bytes, over 4 of 50,000 %d", least, most)
			}
			explained := reconcile.Explain(many.input())
			if n := len(explained.Refused()); n != 4 {
				t.Fatalf("%d refusals, want 4; the first are %v", n, explained.Refused()[:min(n, 3)])
			}
			for i, refused := range explained.Refused() {
				if want := fmt.Sprintf("group/web/g%d/0-49999", i); refused.Subject != want || refused.Code != model.CodeNoMemory {
					t.Errorf("refused is %v, want no_capacity_memory of %s", refused, want)
				}
				if why := explained.Pending(model.NewGroupID("web", fmt.Sprint("g", i))); why == nil ||
					why.Code != model.CodeNoMemory {
					t.Errorf("g%d waits for %v", i, why)
				}
			}
		})
	}
}

// memoryOf returns how many bytes one decision allocates. It returns the least value of five tries, because other
// goroutines may allocate too.
func memoryOf(in reconcile.Input) uint64 {
	var took []uint64
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		reconcile.Decide(in)
		runtime.ReadMemStats(&after)
		took = append(took, after.TotalAlloc-before.TotalAlloc)
	}
	return slices.Min(took)
}

// BenchmarkNowhere measures one decision with jobs that fit nowhere.
func BenchmarkNowhere(b *testing.B) {
	w := fullWorld(b, 2, 100_000, nil)
	in := w.input()
	measure(b, func() {
		if n := len(reconcile.Decide(in).Refused); n == 0 {
			b.Fatal("nothing is refused")
		}
	})
}

// fullSystemWorld returns a cluster of nodes without room, with a job whose groups want one instance on each node.
func fullSystemWorld(t testing.TB, nodes, groups int) *world {
	w := newWorld(t)
	w.quiet = true
	for i := range nodes {
		w.run(fmt.Sprintf("node n%d memory=1000MiB", i))
	}
	w.run(fmt.Sprintf("run full main count=%d memory=900MiB", nodes))
	w.run("decide")
	spec := model.JobSpec{Name: "sys"}
	for i := range groups {
		spec.Groups = append(spec.Groups, model.GroupSpec{
			Name: fmt.Sprint("g", i), Role: model.RoleSystem, Exec: model.ExecSpec{Command: "/bin/app"},
			Resources: model.Resources{MemoryBytes: 500 << 20},
		})
	}
	if refusal := w.apply("cli:ann", &fsm.JobSubmit{Spec: spec}); refusal != nil {
		t.Fatal(refusal)
	}
	return w
}

// If a system group fits on no node, the plan has one refusal for all nodes, and the decision makes at most two
// allocations per node for the group.
func TestSystemGroupsThatFitNowhereCostLittle(t *testing.T) {
	const nodes, few, many = 200, 2, 12
	allocations := func(w *world) float64 {
		in := w.input()
		return testing.AllocsPerRun(3, func() { reconcile.Decide(in) })
	}
	w := fullSystemWorld(t, nodes, many)
	each := (allocations(w) - allocations(fullSystemWorld(t, nodes, few))) / (many - few)
	if each > 2*nodes { // a separate refusal for each node would take 15 allocations per node
		t.Errorf("a group that fits on none of %d nodes costs %.0f allocations", nodes, each)
	}
	explained := reconcile.Explain(w.input())
	list := slices.DeleteFunc(slices.Clone(explained.Refused()), func(r reconcile.Refusal) bool {
		return !strings.HasPrefix(r.Subject, "group/sys/")
	})
	if len(list) != many {
		t.Fatalf("%d refusals, want %d; the first are %v", len(list), many, list[:min(len(list), 3)])
	}
	for _, refused := range list {
		if !strings.HasSuffix(refused.Subject, "/0-199") || refused.Code != model.CodeNoMemory ||
			refused.Message != "200 nodes lack an instance: 200 have too little memory" {
			t.Errorf("refused is %v", refused)
		}
	}
	if why := explained.Pending("sys/g7"); why == nil || why.Code != model.CodeNoMemory {
		t.Errorf("g7 waits for %v", why)
	}

	// A new node with room gets instances.
	w.run("node n999 memory=1000MiB")
	plan := reconcile.Decide(w.input())
	if placed := len(plan.Entries); placed == 0 {
		t.Error("nothing is placed on a node with room")
	}
}

// BenchmarkSystemNowhere measures one decision with system groups and many nodes that all lack room.
func BenchmarkSystemNowhere(b *testing.B) {
	in := fullSystemWorld(b, 5000, 39).input()
	measure(b, func() {
		if n := len(reconcile.Decide(in).Refused); n == 0 {
			b.Fatal("nothing is refused")
		}
	})
}
