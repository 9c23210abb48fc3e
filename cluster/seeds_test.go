package cluster

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// stormSeeds returns the seeds that testdata/seeds has for the test t. If OUTSPAN_SIM is set, it adds 20 random ones.
// If OUTSPAN_SEED is set, it returns only that seed.
func stormSeeds(t *testing.T) (seeds []uint64) {
	t.Helper()
	if text := os.Getenv("OUTSPAN_SEED"); text != "" {
		return []uint64{parseSeed(t, text)}
	}
	f, err := os.Open("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if words := strings.Fields(line); len(words) == 2 && words[1] == t.Name() {
			seeds = append(seeds, parseSeed(t, words[0]))
		}
	}
	if os.Getenv("OUTSPAN_SIM") != "" {
		for range 20 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	return seeds
}

func parseSeed(t *testing.T, text string) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatalf("seed %q: %v", text, err)
	}
	return seed
}
