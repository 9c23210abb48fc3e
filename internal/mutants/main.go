// Command mutants changes the product in one place at a time and runs the tests: a change that no test notices is a
// survivor, and shows code that nothing holds.
//
//	go run ./internal/mutants [-n 400 | -n all] [-seed N] [-only REGEXP] [-skip TESTS] [./model ./fsm ./reconcile]
//
// Why a tool of our own: gremlins and its like build and run tests again for each change. Thousands of changes,
// each with a build and a minute of tests, take days on two cores, and such a tool asks either the tests of the
// package alone or those of the whole module, while much of fsm is held by the scenarios of reconcile. It also
// takes no sample. Here all changes are in one test binary for each package, and an environment variable chooses
// one (schemata). Which test reaches which change is recorded once, so a change costs one run of the tests that
// reach it, the quick ones first, until one fails. A sample gives the score of the whole within a few per cent.
//
// What counts as noticed: a test fails, the program ends, or it takes many times the processor time or the memory
// that the tests take without the change. Time is processor time, so a busy machine doesn't raise the score.
// Properties draw fewer cases here than in make test (-checks), and a test above -slow seconds is left out; the
// score is too low for that.
//
// The file equivalents.txt lists changes that change nothing. They are left out, and an entry that fits no change
// any more is an error.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"syscall"
)

//go:embed equivalents.txt
var equivalents string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are what the command line says.
type options struct {
	sample   int // 0 for all
	seed     uint64
	only     *regexp.Regexp
	skip     *regexp.Regexp // tests that are left out; nil for none
	workers  int
	checks   int     // of each property
	slow     float64 // seconds of processor time
	patience int     // seconds of processor time that a run has beside a multiple of what it takes
	packages []string
	progress io.Writer

	equivalents string // the text of the file
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(stderr)
	sample := flags.String("n", "400", "how many changes are tried, or all")
	seed := flags.Uint64("seed", 0, "chooses the sample; 0 for a fresh one")
	only := flags.String("only", "", "only changes whose line in the report matches this expression")
	skip := flags.String("skip", "", "without the tests whose name matches this expression")
	o := options{progress: stderr, patience: 10, equivalents: equivalents}
	flags.IntVar(&o.workers, "p", runtime.NumCPU(), "how many changes are tried at a time")
	flags.IntVar(&o.checks, "checks", 15, "how many cases each property draws")
	flags.Float64Var(&o.slow, "slow", 6, "tests that take more seconds of processor time are left out")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, err
	}
	if *skip != "" {
		if o.skip, err = regexp.Compile(*skip); err != nil {
			return o, err
		}
	}
	if *sample != "all" {
		if o.sample, err = strconv.Atoi(*sample); err != nil || o.sample < 1 {
			return o, fmt.Errorf("-n is a number above 0, or all: %q", *sample)
		}
	}
	if o.seed = *seed; o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	if o.packages = flags.Args(); len(o.packages) == 0 {
		o.packages = []string{"./model", "./fsm", "./reconcile"}
	}
	return o, nil
}

// run is main with its surroundings as parameters. The exit code is 0 when there is a score, whatever it is.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err == nil {
		err = measure(ctx, o, stdout)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "mutants:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, o options, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	found, err := find(o.packages)
	if err != nil {
		return err
	}
	known, err := readEquivalents(o.equivalents)
	if err != nil {
		return err
	}
	candidates, err := known.leaveOut(found.mutants)
	if err != nil {
		return err
	}
	left := len(found.mutants) - len(candidates)

	lab, err := build(ctx, dir, found, o)
	if err != nil {
		return err
	}
	if err := lab.record(ctx); err != nil {
		return err
	}
	outcomes, err := lab.try(ctx, choose(candidates, o), stdout)
	if err != nil {
		return err
	}
	report(stdout, outcomes, len(candidates), left, o)
	return nil
}

// choose draws the sample: the first ones of a shuffled list.
func choose(all []Mutant, o options) []Mutant {
	var chosen []Mutant
	for _, m := range all {
		if o.only.MatchString(m.String()) {
			chosen = append(chosen, m)
		}
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(chosen), func(i, k int) { chosen[i], chosen[k] = chosen[k], chosen[i] })
	if o.sample > 0 && o.sample < len(chosen) {
		chosen = chosen[:o.sample]
	}
	return chosen
}

// report prints one line for each package and one for all.
func report(out io.Writer, outcomes []outcome, candidates, left int, o options) {
	counts := map[string]map[verdict]int{"all": {}}
	for _, one := range outcomes {
		if counts[one.mutant.Package] == nil {
			counts[one.mutant.Package] = map[verdict]int{}
		}
		counts[one.mutant.Package][one.verdict]++
		counts["all"][one.verdict]++
	}
	var names []string
	for name := range counts {
		if name != "all" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range append(names, "all") {
		c := counts[name]
		noticed := c[failed] + c[exhausted]
		total := noticed + c[survived] + c[unreached]
		if total == 0 {
			continue
		}
		share := float64(noticed) / float64(total)
		margin := 1.96 * math.Sqrt(share*(1-share)/float64(total))
		fmt.Fprintf(out, "%-10s %.1f %% ± %.1f of %d changes: %d failed a test, %d ran out of time or memory, "+
			"%d survived, %d reached by no test\n",
			name, 100*share, 100*margin, total, c[failed], c[exhausted], c[survived], c[unreached])
	}
	fmt.Fprintf(out, "sample: %d of %d changes, seed %d; %d equivalents left out\n",
		len(outcomes), candidates, o.seed, left)
}
