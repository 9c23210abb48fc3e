package reconcile_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// TestPreemptionComesToRest runs jobs of four classes on nodes that are too small for them. Everything that
// TestProperties checks holds here too. Each stop that makes room hits a less important instance, or an equally
// important one if the class is fair. Each such stop is in the entry that promises the room. Everything comes to rest,
// so preemptions don't form a cycle. At rest nothing waits for room, and no pending instance would fit in place of a
// less important one.
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
	if preempted == 0 {
		t.Error("nothing was ever preempted")
	}
}

// classed adds a class to lines that run certain jobs of drawLine. Two of these jobs share the class batch.
func classed(line string) string {
	for job, class := range map[string]string{"web": "batch", "roll": "critical", "mon": "system", "lock": "batch"} {
		if strings.HasPrefix(line, "run "+job+" ") {
			return line + " class=" + class
		}
	}
	return line
}
