package reconcile_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// fullWorld is a cluster of ten nodes without room, and a job of groups that want so many instances each.
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

// A group of many instances of which none fits is one refusal, and a decision takes no more memory than for a few. Each
// slot has its reason all the same.
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
				if why := explained.Pending(model.NewGroupID("web", fmt.Sprint("g", i))); why == nil || why.Code != model.CodeNoMemory {
					t.Errorf("g%d waits for %v", i, why)
				}
			}
		})
	}
}

// memoryOf is how many bytes one decision allocates: the least of some, for others may allocate meanwhile.
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

// BenchmarkNowhere is one look at jobs of which nothing fits.
func BenchmarkNowhere(b *testing.B) {
	w := fullWorld(b, 2, 100_000, nil)
	in := w.input()
	measure(b, func() {
		if n := len(reconcile.Decide(in).Refused); n == 0 {
			b.Fatal("nothing is refused")
		}
	})
}
