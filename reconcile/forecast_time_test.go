package reconcile_test

import (
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// The forecast of a drain estimates when the last instance will be gone. The estimate adds up the waits for rates, the
// starts of replacements and the stops. Stops at the same time are added only once. The test then runs the drain in
// steps of one second. The estimate may differ from the drain's real time by at most a fifth of the real time plus 3 s.
func TestForecastTellsTheTime(t *testing.T) {
	for name, run := range map[string]string{
		"no rate":                      "run web http count=12",
		"one a minute":                 "run web http count=12 rate=1/1m",
		"two in ten seconds":           "run web http count=16 rate=2/10s",
		"two in ten minutes":           "run web http count=20 rate=2/10m",
		"stop first":                   "run web http count=9 order=stop_first max_down=1",
		"stop first, one a minute":     "run web http count=12 order=stop_first rate=1/1m",
		"one after the other":          "run web http count=12 max_down=1",
		"one an hour and one a minute": "run web http count=6 rate=1/1h; api count=12 rate=1/1m",
	} {
		for _, start := range []model.Duration{0, 5 * model.Second, 40 * model.Second} {
			t.Run(name+"/"+start.String(), func(t *testing.T) {
				w := newWorld(t)
				w.at = name
				w.run("node n1 n2 n3")
				w.run(run)
				w.paced(start, func() bool { return w.state.Index > 5 && w.allServe() })
				w.now = w.now.Add(2 * model.Hour) // longer than the window of any rate
				forecast, refusal := reconcile.ForecastDrain(w.input(), []string{"n1"}, model.DrainOptions{})
				if refusal != nil {
					t.Fatal(refusal)
				}
				told := model.Duration(0)
				for _, f := range forecast {
					told = max(told, f.After)
				}
				began := w.now
				w.run("drain d1 n1 deadline=none")
				w.paced(start, func() bool { d, _ := w.state.Drains.Get("d1"); return d.Phase() == model.PhaseDrained })
				took := w.now.Sub(began)
				if off := told - took; off > took/5+3*model.Second || -off > took/5+3*model.Second {
					t.Errorf("the forecast tells %s, the drain took %s", told, took)
				}
				t.Logf("told %s, took %s", told, took)
			})
		}
	}
}

// allServe reports whether every instance is ready. It returns false if there are no instances.
func (w *world) allServe() bool {
	for _, inst := range w.state.Instances.All() {
		if !inst.Ready() {
			return false
		}
	}
	return w.state.Instances.Len() > 0
}

// paced makes the leader and the agents work until done returns true, for at most four hours. An instance becomes ready
// when the duration start has passed since its placement, and stops one second after its stop was decided.
func (w *world) paced(start model.Duration, done func() bool) {
	w.t.Helper()
	told := map[model.InstanceID]model.Time{}
	for range 4 * 60 * 60 {
		w.decide()
		for _, inst := range w.state.Instances.All() {
			switch {
			case inst.Terminal():
			case inst.Desired != model.DesiredRunning && told[inst.ID] == 0:
				told[inst.ID] = w.now
			case inst.Desired != model.DesiredRunning && w.now >= told[inst.ID].Add(model.Second),
				inst.Desired == model.DesiredRunning && !inst.Ready() && w.now >= inst.Marks.Created.Add(start):
				w.workOn(inst)
			}
		}
		if done() {
			return
		}
		w.now = w.now.Add(model.Second)
	}
	w.t.Fatalf("%s: not done after four hours", w.at)
}
