package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// verdict is what became of a mutant.
type verdict string

// What can become of a mutant.
const (
	failed    verdict = "failed"    // a test noticed it
	exhausted verdict = "exhausted" // the tests took too much time or memory
	survived  verdict = "survived"
	unreached verdict = "unreached" // no test gets there
)

type outcome struct {
	mutant  Mutant
	verdict verdict
}

// quick is up to which processor time tests run together in one process, before the others.
const quick = 0.4

// each calls a function for everything in a list, several at a time, and blocks until all are done. The first
// error ends it.
func each[T any](ctx context.Context, workers int, list []T, do func(context.Context, T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan T)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for one := range work {
				if ctx.Err() == nil {
					if err := do(ctx, one); err != nil {
						stop(err)
					}
				}
			}
		})
	}
	for _, one := range list {
		work <- one
	}
	close(work)
	group.Wait()
	return context.Cause(ctx)
}

// try runs the tests that reach each mutant, and prints those that nothing notices as they are found.
func (l *lab) try(ctx context.Context, mutants []Mutant, out io.Writer) ([]outcome, error) {
	var (
		lock     sync.Mutex
		outcomes []outcome
	)
	begin := time.Now()
	err := each(ctx, l.workers, mutants, func(ctx context.Context, m Mutant) error {
		v, err := l.one(ctx, m)
		lock.Lock()
		defer lock.Unlock()
		if v == survived || v == unreached {
			fmt.Fprintf(out, "%s: %s\n", v, m)
		}
		if outcomes = append(outcomes, outcome{m, v}); len(outcomes)%50 == 0 {
			took := time.Since(begin).Round(time.Second)
			fmt.Fprintf(l.progress, "%d of %d after %s\n", len(outcomes), len(mutants), took)
		}
		return err
	})
	return outcomes, err
}

// one tries a mutant.
func (l *lab) one(ctx context.Context, m Mutant) (verdict, error) {
	v := unreached
	for _, t := range l.batches(m) {
		r, err := l.start(ctx, t, m.ID, nil, "-test.run="+t.name)
		switch {
		case err != nil:
			return "", err
		case r.exhausted:
			return exhausted, nil
		case !r.passed:
			return failed, nil
		}
		v = survived
	}
	return v, nil
}

// batches are the tests that reach a mutant, those that run in one process put into one whose name is a pattern:
// the quick ones of each package, subtests of each test apart, then the others one by one.
func (l *lab) batches(m Mutant) []*test {
	var together, alone []*test
	for _, b := range l.binaries {
		names := map[string][]string{} // the subtests by test; its quick tests under ""
		seconds := map[string]float64{}
		for _, t := range l.tests {
			switch {
			case t.binary != b || !t.reaches[m.ID]:
			case t.sub != "":
				names[t.name] = append(names[t.name], t.sub)
				seconds[t.name] += t.seconds
			case t.seconds <= quick && t.checks > 0:
				names[""] = append(names[""], t.name)
				seconds[""] += t.seconds
			default:
				alone = append(alone, &test{
					binary: b, name: pattern(t.name, []string{""}), seconds: t.seconds, checks: t.checks,
				})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			of := pattern(name, names[name])
			if name == "" {
				of = "^(" + strings.Join(names[name], "|") + ")$"
			}
			together = append(together, &test{binary: b, name: of, seconds: seconds[name], checks: l.checks})
		}
	}
	slices.SortStableFunc(alone, func(a, b *test) int { return cmp.Compare(a.seconds, b.seconds) })
	return append(together, alone...)
}
