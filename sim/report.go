package sim

import (
	"fmt"
	"strings"
	"time"
)

// Total adds up the results of many histories.
type Total struct {
	Seeds  int
	Failed []Result
	Counts Counts
	Took   time.Duration // CPU time of all cores together
}

// Add adds the result of one history.
func (t *Total) Add(r Result) {
	t.Seeds++
	t.Counts.Add(&r.Counts)
	if r.Failure != nil {
		t.Failed = append(t.Failed, r)
	}
}

// String describes the total in a few lines.
func (t *Total) String() string {
	var b strings.Builder
	seconds := t.Took.Seconds()
	fmt.Fprintf(&b, "%d seeds, %d failed; %d steps, %.0f a second and core; %.1f days of cluster time\n",
		t.Seeds, len(t.Failed), t.Counts[CountSteps], float64(t.Counts[CountSteps])/max(seconds, 0.001),
		float64(t.Counts[CountMinutes])/(24*60))
	for i, c := range Counters() {
		fmt.Fprintf(&b, "%8d %-44s", t.Counts[c], c)
		if i%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// Story describes a failure for people: how to run the history again, its actions, and the end of the trace.
func (r *Result) Story() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"%v\nscenario %s, run it again with: OUTSPAN_SEED=%d OUTSPAN_SCENARIO=%s go test ./sim -run TestSeed "+
			"-v\n%d actions:\n", r.Failure, r.Scenario, r.Seed, r.Scenario, len(r.Schedule))
	for _, a := range r.Schedule {
		fmt.Fprintf(&b, "  %10.3fs %s (%x)\n", float64(a.At)/1000, a.Kind, a.Number)
	}
	for _, line := range r.Trace {
		b.WriteString(line + "\n")
	}
	return b.String()
}
