package reconcile_test

import (
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// A forecast includes what happens before a rate allows the next stop. Here only n3 has enough room for the instance of
// api, and n3 accepts instances again before the drain's deadline. So the instance moves to n3 and is not stopped by
// force.
func TestForecastSeesWhatComesBeforeARate(t *testing.T) {
	for _, rate := range []string{"", " rate=1/2h"} {
		w := newWorld(t)
		w.run("node n1 memory=4000MiB")
		w.run("run api http count=1 memory=1500MiB")
		w.run("run web http count=3 memory=100MiB" + rate)
		w.run("settle")
		w.run("node n2 memory=1000MiB")
		w.run("node n3 memory=4000MiB")
		for range 4 { // n3 goes offline and returns repeatedly (it flaps), so it gets no instances for a while
			w.run("silent 70s n3")
			w.run("settle")
			w.run("advance 10s")
			w.run("return n3")
			w.run("settle")
		}
		n, _ := w.state.Nodes.Get("n3")
		held := n.Return.HeldUntil.Sub(w.now)
		deadline := 20 * model.Minute
		if held <= 0 || held >= deadline {
			t.Fatalf("n3 takes nothing for %s, want less than the drain's %s", held, deadline)
		}
		forecast, refusal := reconcile.ForecastDrain(w.input(), []string{"n1"},
			model.DrainOptions{Deadline: deadline, ForceAtDeadline: true})
		if refusal != nil {
			t.Fatal(refusal)
		}
		for _, f := range forecast {
			if f.Group == "api/http" && (f.Target != "n3" || f.After < held || f.After > held+model.Minute) {
				t.Errorf("with%q: %s after %s; want a move to n3 after %s", rate, w.forecastText(f), f.After, held)
			}
		}
	}
}
