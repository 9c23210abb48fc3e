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

type verdict string

// The verdicts on a mutant.
const (
	failed    verdict = "failed"    // a test failed
	exhausted verdict = "exhausted" // a test took too much time or memory, or a signal killed it
	survived  verdict = "survived"  // all tests that execute the mutant passed
	unreached verdict = "unreached" // no test executes the mutant
)

type outcome struct {
	mutant  Mutant
	verdict verdict
}

// Tests of one package run together in one process if each of them takes at most quick seconds of processor time. A
// test that needs its own number of cases runs alone.
const quick = 0.4

// each calls the function do for every element of a list, and blocks until all calls have returned. The parameter
// workers is the largest number of calls at a time. After an error each starts no more calls, and returns the error.
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

// try runs the tests that reach each mutant, and returns the outcomes. Each mutant that no test notices is printed at
// once.
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

// one runs the tests that reach one mutant, until one of these tests notices the mutant.
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

// batches returns the tests that reach a mutant, in batches that each run in one process. A batch is a test whose name
// is a pattern for -test.run. The quick tests of a package are one batch, and so are the subtests of each test that is
// split. These batches come first. All other tests follow, each in a batch of its own, the fastest first.
func (l *lab) batches(m Mutant) []*test {
	var together, alone []*test
	for _, b := range l.binaries {
		names := map[string][]string{} // subtests by the name of their test; quick tests under ""
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
