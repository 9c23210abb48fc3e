package reconcile_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/internal/draw"
	"github.com/outspan/outspan/model"
)

// TestPreemptionComesToRest runs jobs of four classes on nodes that are too small for all of them, with the checks of
// TestProperties. The cluster must settle, so preemptions don't form a cycle. Then no instance may wait for room that
// victims still take.
func TestPreemptionComesToRest(t *testing.T) {
	preempted := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.run("settings offline_after=6s start_timeout=20s rescheduler=off")
		w.run("node n1 n2 memory=300MiB rack=a")
		w.run("node n3 n4 memory=250MiB rack=b")
		w.run("node n5 memory=400MiB rack=c")
		if rapid.Bool().Draw(rt, "fair") {
			w.run("class batch fair")
		}
		lines := []string{}
		for range rapid.IntRange(5, 50).Draw(rt, "steps") {
			line := classed(drawLine(rt, w))
			lines = append(lines, line)
			w.at = strings.Join(lines, "\n")
			w.run(line)
			if rapid.Bool().Draw(rt, "decides") {
				lines = append(lines, "decide")
				w.at = strings.Join(lines, "\n")
				w.decideChecked(rt)
			}
		}
		w.at = strings.Join(lines, "\n") + "\n(quiet)"
		w.comeToRest(rt)
		for id, inst := range w.state.Instances.All() {
			if inst.WaitsForRoom() {
				rt.Fatalf("%s: at rest, and %s awaits %v", w.at, w.names[id], inst.Links.Awaits)
			}
		}
		for _, e := range w.state.Events.All() {
			if e.Cause == model.CausePreempted && e.Before == string(model.DesiredRunning) {
				preempted++
			}
		}
	})
	t.Logf("%d instances were preempted", preempted)
	if preempted == 0 && !draw.Race {
		t.Error("nothing was ever preempted")
	}
}

// classed adds a class to a line that runs the job web, roll, mon or lock. Other lines stay as they are, and other jobs
// have the default class.
func classed(line string) string {
	for job, class := range map[string]string{"web": "batch", "roll": "critical", "mon": "system", "lock": "batch"} {
		if strings.HasPrefix(line, "run "+job+" ") {
			return line + " class=" + class
		}
	}
	return line
}
