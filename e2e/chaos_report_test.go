package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// zeros lists the numbers of violations by invariant. The text of a violation begins with the invariant's id.
func (b *book) zeros() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]int{}
	for _, text := range b.wrong {
		id, _, _ := strings.Cut(text, ":")
		found[id]++
	}
	return fmt.Sprintf("lost acknowledged commands %d, budget violations %d, double holders %d, diverged servers %d, "+
		"unlinearizable histories %d, other violations %d",
		found["S4"], found["S3"], found["S2"], found["S5"], found["LIN"],
		len(b.wrong)-found["S2"]-found["S3"]-found["S4"]-found["S5"]-found["LIN"])
}

// report fails the test for each violation, and prints all counts. If the test has failed, it also prints what was
// done, and when.
func (x *chaos) report() {
	x.book.mu.Lock()
	lines, wrong, counts, most := slices.Clone(x.book.lines), slices.Clone(x.book.wrong), maps.Clone(x.book.counts),
		maps.Clone(x.book.most)
	x.book.mu.Unlock()
	for _, text := range wrong {
		x.t.Errorf("%s", text)
	}
	if x.t.Failed() {
		x.t.Logf("what was done:\n%s", strings.Join(lines, "\n"))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "chaos: %s with OUTSPAN_SEED=%d: %s\n", time.Since(x.book.began).Round(time.Second),
		x.seed, x.book.zeros())
	var kinds, rest []string
	total := 0
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if kind, ok := strings.CutPrefix(name, "fault "); ok {
			kinds = append(kinds, fmt.Sprintf("%s %d", kind, counts[name]))
			total += counts[name]
		} else {
			rest = append(rest, fmt.Sprintf("%s %d", name, counts[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(most)) {
		rest = append(rest, fmt.Sprintf("longest %s %s", name, most[name].Round(time.Millisecond)))
	}
	fmt.Fprintf(&text, "chaos: %d faults: %s\nchaos: %s\n", total, strings.Join(kinds, ", "), strings.Join(rest, ", "))
	fmt.Fprint(os.Stdout, text.String())
	if x.t.Failed() {
		fmt.Fprintf(os.Stdout, "chaos: the same order of faults again: OUTSPAN_SEED=%d make chaos\n", x.seed)
	}
}
