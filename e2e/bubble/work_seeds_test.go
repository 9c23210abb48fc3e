package bubble

import (
	"bufio"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Which seeds a random test runs:
//
//   - OUTSPAN_SEED=N: only the seed N;
//   - OUTSPAN_SIM=1: the seeds that once failed, then OUTSPAN_SIM_SEEDS (default 10) fresh ones;
//   - otherwise: the seeds that once failed, and a few fixed ones. So `make test` does the same each time, as far as a
//     bubble can (see doc.go).
const (
	oneSeed   = "OUTSPAN_SEED"
	longForm  = "OUTSPAN_SIM"
	longSeeds = "OUTSPAN_SIM_SEEDS"
)

// corpus is the file of the seeds that once found a bug, in lines such as "SEED TestName # what it was".
const corpus = "testdata/seeds"

// during returns how long a test runs: the full time, or half of it in make test (-short), which is the first half of
// the same plan. A single seed (OUTSPAN_SEED) always runs for the full time.
func during(full time.Duration) time.Duration {
	if testing.Short() && os.Getenv(oneSeed) == "" {
		return full / 2
	}
	return full
}

// eachRandom runs a test once for each seed that seedsOf returns. It logs a summary of all runs.
func eachRandom(t *testing.T, short int, test func(t *testing.T, random *rand.Rand)) {
	t.Helper()
	seeds, err := seedsOf(t.Name(), short, os.Getenv)
	must(t, err)
	var sum tally
	for _, seed := range seeds {
		t.Run("", func(t *testing.T) {
			t.Logf("%s=%d", oneSeed, seed)
			tallies.begin(t, &sum)
			test(t, rand.New(rand.NewPCG(seed, seed)))
		})
	}
	t.Logf("%s: seeds %v: %s", t.Name(), seeds, sum.String())
}

// seedsOf returns the seeds that a test runs. The parameter short is the number of fixed seeds.
func seedsOf(name string, short int, env func(string) string) ([]uint64, error) {
	if text := env(oneSeed); text != "" {
		seed, err := strconv.ParseUint(text, 0, 64)
		return []uint64{seed}, err
	}
	raw, err := os.ReadFile(corpus)
	if err != nil {
		return nil, err
	}
	seeds, err := parseCorpus(string(raw), name)
	if err != nil {
		return nil, err
	}
	if env(longForm) == "" {
		for i := range short {
			seeds = append(seeds, uint64(i+1))
		}
		return seeds, nil
	}
	n, err := strconv.Atoi(cmp.Or(env(longSeeds), "10"))
	for range n {
		seeds = append(seeds, rand.Uint64())
	}
	return seeds, err
}

// parseCorpus lists the seeds that the corpus has for one test.
func parseCorpus(text, name string) (seeds []uint64, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		seed, err := strconv.ParseUint(words[0], 0, 64)
		if err != nil || len(words) != 2 {
			return nil, fmt.Errorf("%s:%d: %q is not SEED TestName # what it found", corpus, n, lines.Text())
		}
		if words[1] == name {
			seeds = append(seeds, seed)
		}
	}
	return seeds, lines.Err()
}

// tally counts what the runs of one test did. Safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	worlds  int
	time    time.Duration // simulated time of all worlds
	entries int
	faults  map[string]int // number of faults and other actions, by kind
}

func (s *tally) add(simulated time.Duration, entries int, faults map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults == nil {
		s.faults = map[string]int{}
	}
	s.worlds++
	s.time += simulated
	s.entries += entries
	for kind, n := range faults {
		s.faults[kind] += n
	}
}

// String describes the tally in one line.
func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(s.faults)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, s.faults[kind]))
	}
	return fmt.Sprintf("%d clusters, %s of cluster time, %d entries; %s", s.worlds, s.time.Round(time.Second),
		s.entries, strings.Join(kinds, ", "))
}

// tallies has the tally of each running test, by the test's name. With this table, a world needs no reference to the
// tally of its test.
var tallies = register{of: map[string]*tally{}}

type register struct {
	mu sync.Mutex
	of map[string]*tally
}

func (r *register) begin(t *testing.T, s *tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[t.Name()] = s
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.of, t.Name())
	})
}

// count adds what one world did to the tally of its test. It does nothing if the test has no tally.
func (r *register) count(t *testing.T, simulated time.Duration, entries int, faults map[string]int) {
	r.mu.Lock()
	s := r.of[t.Name()]
	r.mu.Unlock()
	if s != nil {
		s.add(simulated, entries, faults)
	}
}

func TestSeeds(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(key string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == key {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	one, err := seedsOf("TestX", 3, env(oneSeed, "0x11"))
	if err != nil || !slices.Equal(one, []uint64{17}) {
		t.Errorf("one seed: %v, %v", one, err)
	}
	fixed, err := seedsOf("TestX", 3, env())
	if err != nil || !slices.Equal(fixed, []uint64{1, 2, 3}) {
		t.Errorf("fixed seeds: %v, %v", fixed, err)
	}
	long, err := seedsOf("TestX", 3, env(longForm, "1", longSeeds, "5"))
	if err != nil || len(long) != 5 || slices.Equal(long, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("random seeds: %v, %v", long, err)
	}
	from, err := parseCorpus("# found once\n7 TestX # S1\n\n8 TestY\n9 TestX\n", "TestX")
	if err != nil || !slices.Equal(from, []uint64{7, 9}) {
		t.Errorf("the corpus: %v, %v", from, err)
	}
	if _, err := parseCorpus("seven TestX\n", "TestX"); err == nil {
		t.Error("a bad corpus was accepted")
	}
}
