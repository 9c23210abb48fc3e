package sim

import (
	"bufio"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	fixed       = 66 // TestSeeds runs the seeds 1 to fixed
	imaged      = 8  // and the seeds 1 to imaged with images
	traceLines  = 60
	shrinkLimit = 20 * time.Second
)

// job is one history to run.
type job struct {
	seed     uint64
	scenario string
}

// corpus returns the histories that once found a bug.
func corpus(t *testing.T) []job {
	t.Helper()
	f, err := os.Open("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var jobs []job
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		seed, err := strconv.ParseUint(words[0], 0, 64)
		if err != nil || len(words) != 2 {
			t.Fatalf("testdata/seeds: %q is not a seed and a scenario", lines.Text())
		}
		jobs = append(jobs, job{seed, words[1]})
	}
	return jobs
}

// runAll runs histories on several cores and reports those that fail. It shrinks the first three of them.
func runAll(t *testing.T, jobs []job, cores int) *Total {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	total := &Total{}
	// With the default setting, garbage collection would take a third of the time, because the heap stays small.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	next, before := 0, spent(t)
	for range cores {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(jobs) {
					return
				}
				r := Run(Config{Seed: jobs[i].seed, Scenario: jobs[i].scenario})
				if r.Failure != nil {
					t.Logf("OUTSPAN_SEED=%d scenario %s: %v", r.Seed, r.Scenario, r.Failure) // t.Errorf follows only at the end
				}
				mu.Lock()
				total.Add(r)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total.Took = spent(t) - before
	for i, r := range total.Failed {
		if i < 3 {
			r = Shrink(r, traceLines, shrinkLimit)
		}
		t.Errorf("OUTSPAN_SEED=%d\n%s", r.Seed, r.Story())
	}
	return total
}

// spent returns the CPU time that this process has used so far.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// TestSeeds runs the corpus and a fixed set of histories. Together they must raise every counter, because a simulation
// that never preempts proves nothing about preemption.
func TestSeeds(t *testing.T) {
	jobs := corpus(t)
	all := scenarios()
	for seed := uint64(1); seed <= fixed; seed++ {
		jobs = append(jobs, job{seed, all[seed%uint64(len(all))].name})
	}
	for seed := uint64(1); seed <= imaged; seed++ {
		jobs = append(jobs, job{seed, imageScenario().name})
	}
	total := runAll(t, jobs, runtime.GOMAXPROCS(0))
	t.Log(total)
	for _, c := range Counters() {
		if total.Counts[c] == 0 {
			t.Errorf("no history has any of these: %s", c)
		}
	}
}

// TestDeterminism checks that a seed determines its history: a second run must be the same bit for bit, although Go
// iterates over maps in a random order.
func TestDeterminism(t *testing.T) {
	for _, s := range append(scenarios(), imageScenario()) {
		for seed := uint64(100); seed < 101; seed++ {
			cfg := Config{Seed: seed, Scenario: s.name}
			first, second := Run(cfg), Run(cfg)
			if first.Hash != second.Hash || first.Counts != second.Counts {
				t.Errorf("OUTSPAN_SEED=%d scenario %s: run twice, two histories", seed, s.name)
			}
		}
	}
}

// TestSeed runs the history that OUTSPAN_SEED and OUTSPAN_SCENARIO name. If the history fails, it is shrunk and
// described.
func TestSeed(t *testing.T) {
	text := os.Getenv("OUTSPAN_SEED")
	if text == "" {
		t.Skip("set OUTSPAN_SEED to run one history again")
	}
	seed, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	r := Run(Config{Seed: seed, Scenario: os.Getenv("OUTSPAN_SCENARIO"), Lines: traceLines})
	if r.Failure != nil {
		r = Shrink(r, traceLines, 3*shrinkLimit)
		t.Error(r.Story())
	}
	t.Logf("scenario %s, %d steps, hash %x", r.Scenario, r.Counts[CountSteps], r.Hash)
}

// TestMany runs the corpus and OUTSPAN_SEEDS fresh seeds, beginning with OUTSPAN_SEED if that is set.
func TestMany(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("OUTSPAN_SEEDS"))
	if err != nil {
		t.Skip("set OUTSPAN_SEEDS to a number of fresh histories to run (make sim does)")
	}
	first, err := strconv.ParseUint(os.Getenv("OUTSPAN_SEED"), 0, 64)
	if err != nil {
		first = rand.Uint64() >> 1
	}
	t.Logf("OUTSPAN_SEED=%d OUTSPAN_SEEDS=%d", first, count)
	jobs := corpus(t)
	for i := range count {
		jobs = append(jobs, job{seed: first + uint64(i), scenario: os.Getenv("OUTSPAN_SCENARIO")})
	}
	began := time.Now()
	total := runAll(t, jobs, runtime.GOMAXPROCS(0))
	t.Logf("in %s: %s", time.Since(began).Round(time.Second), total)
}
