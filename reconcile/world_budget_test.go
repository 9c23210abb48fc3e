package reconcile_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// budgetVocabulary returns the commands for shared budgets, rates of actors, classes and quotas.
func budgetVocabulary() map[string]func(*world, []string) string {
	return map[string]func(*world, []string) string{
		// budget db min_ready=2 max_down=25% rate=1/1m blocking: sets a shared budget
		"budget": func(w *world, a []string) string {
			g := model.GroupSpec{Budget: &model.BudgetSpec{}}
			for _, arg := range a[1:] {
				key, value, _ := strings.Cut(arg, "=")
				w.budgetKey(&g, key, value)
			}
			return w.must(w.apply("cli:ann", &fsm.BudgetSet{Name: model.BudgetName(a[0]), Spec: *g.Budget}))
		},
		"remove-budget": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.BudgetRemove{Name: model.BudgetName(a[0])}))
		},
		// budgets: prints the numbers of every group's own budget and of every shared budget
		"budgets": (*world).cmdBudgets,
		// lines web/http: prints each budget of the group with its present numbers, in words
		"lines": func(w *world, a []string) string {
			var out strings.Builder
			for _, l := range w.state.BudgetLines(model.GroupID(a[0])) {
				fmt.Fprintf(&out, "%s %s: %s\n", l.Scope, l.Name, l.Text)
			}
			return out.String()
		},
		// class-set gold above=production below=.. max_down=10% memory=300MiB instances=4: sets a class and its quota
		"class-set": (*world).cmdClassSet,
		"remove-class": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.ClassRemove{Name: model.ClassName(a[0])}))
		},
		// classes: prints the classes in their order, with what their instances use
		"classes": (*world).cmdClasses,
		// rate drain=1/1m: sets the rate of a kind of actor
		"rate": (*world).cmdRate,
		// changed-since-remembered: prints the instances whose rows have changed since the command remember
		"changed-since-remembered": func(w *world, _ []string) string {
			out := ""
			for id, inst := range w.state.Instances.All() {
				if old, ok := w.remembered.Instances.Get(id); !ok || old != inst {
					out += w.names[id] + "\n"
				}
			}
			return out + fmt.Sprintf("of %d instances\n", w.state.Instances.Len())
		},
	}
}

func (w *world) cmdBudgets([]string) string {
	var out strings.Builder
	line := func(l *fsm.Ledger) {
		fmt.Fprintf(&out, "%s want %d, ready %d, min ready %d, allowed %d, stops %d\n", l.Name, l.Want, l.Ready,
			l.Budget.MinReady, l.Allowed(w.now), l.Used(w.now))
	}
	for id := range w.state.Groups.All() {
		line(&w.state.Ledgers(id)[0])
	}
	for _, b := range w.state.Budgets.All() {
		l := w.state.SharedLedger(b)
		line(&l)
	}
	return out.String()
}

func (w *world) cmdClassSet(args []string) string {
	c := &fsm.ClassSet{Name: model.ClassName(args[0])}
	quota := model.Quota{}
	if old, _, ok := w.state.Class(c.Name); ok {
		quota = old.Quota
	}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "above":
			c.Above = model.ClassName(value)
		case "below":
			c.Below = model.ClassName(value)
		case "max_down":
			c.MaxDown = &model.MaxDown{Amount: *amount(value)}
		case "memory":
			quota.MemoryBytes = size(value)
			c.Quota = &quota
		case "instances":
			quota.Instances = number(value)
			c.Quota = &quota
		default:
			w.t.Fatalf("%s: no such key: %s", w.at, key)
		}
	}
	return w.must(w.apply("cli:ann", c))
}

func (w *world) cmdClasses([]string) string {
	var out strings.Builder
	for rank, c := range w.state.Classes {
		u := w.state.ClassUsage(c.Name)
		fmt.Fprintf(&out, "%d %s max down %s, uses %d instances, %d MiB", rank, c.Name, c.MaxDown,
			u.Instances, u.MemoryBytes>>20)
		if c.Quota != (model.Quota{}) {
			fmt.Fprintf(&out, " of %d, %d MiB", c.Quota.Instances, c.Quota.MemoryBytes>>20)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (w *world) cmdRate(args []string) string {
	s := w.state.Settings
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		var rate model.ActorRate
		if err := rate.UnmarshalText([]byte(value)); err != nil {
			w.t.Fatalf("%s: %v", w.at, err)
		}
		switch model.StopOrigin(key) {
		case model.ByDrain:
			s.RateDrain = rate
		case model.ByPreemption:
			s.RatePreemption = rate
		case model.ByRescheduler:
			s.RateRescheduler = rate
		case model.ByOperator:
			s.RateOperator = rate
		default:
			w.t.Fatalf("%s: no such actor: %s", w.at, key)
		}
	}
	return w.must(w.apply("cli:ann", &fsm.SettingsSet{Settings: s}))
}

// drawLimit returns a random change of a shared budget, a quota or a rate.
func drawLimit(rt *rapid.T) string {
	return rapid.SampledFrom([]string{
		"budget both max_down=1 blocking", "budget both max_down=50%", "budget both min_ready=3 blocking",
		"budget both rate=1/10s max_down=50%",
		"class-set production instances=4", "class-set production instances=8", "class-set production instances=0",
		"class-set production memory=900MiB instances=0",
		"class-set production memory=0MiB", "rate drain=1/10s", "rate drain=none operator=1/10s", "rate operator=none",
	}).Draw(rt, "limit")
}

// sharedHold checks that the last decision took no shared budget below its min_ready. It does not check a budget if
// free contains one of its groups, or if the decision declared an instance of such a group lost.
func (w *world) sharedHold(t rapid.TB, before fsm.State, free map[model.GroupID]bool) {
	for name, b := range w.state.Budgets.All() {
		old, ok := before.Budgets.Get(name)
		if !ok {
			continue
		}
		skip := false
		for _, id := range b.Groups {
			skip = skip || free[id] || wentOffline(before, w.state, id)
		}
		was, is := before.SharedLedger(old), w.state.SharedLedger(b)
		if !skip && is.Ready < was.Ready && is.Ready < is.Budget.MinReady {
			t.Fatalf("%s: budget %s went from %d ready to %d by decisions, and must keep %d", w.at, name, was.Ready,
				is.Ready, is.Budget.MinReady)
		}
	}
}
