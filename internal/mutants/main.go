// Command mutants changes the product in one place at a time and runs the tests. A change that no test notices is a
// survivor. A survivor shows code that no test checks.
//
//	go run ./internal/mutants [-n 400 | -n all] [-seed N] [-only REGEXP] [-skip TESTS] [./model ./fsm ./reconcile]
//
// Existing tools such as gremlins build and run the tests again for each change. Thousands of changes take them days on
// two cores. They run either the tests of the changed package or those of the whole module, but the scenarios of
// reconcile test much of fsm. They also can't take a sample. This command builds one test binary for each package. Each
// binary contains all changes, and an environment variable switches one change on (mutant schemata). First, all tests
// run once to record which test reaches which change. After that, each change is tried with the tests that reach it,
// the fast ones first, until a test fails.
//
// The score is the share of the changes that are noticed. A change is noticed if a test fails, or if the test process
// crashes, takes too much processor time or memory, or waits forever. Processor time is limited, and not wall-clock
// time, so a busy machine doesn't raise the score. The score of a sample differs from that of all changes by a few per
// cent. The score is lower than with the tests of make test, because here properties draw fewer cases (-checks), and
// tests that take more than -slow seconds of processor time don't run.
//
// The file equivalents.txt lists changes that don't change the program's behaviour. These changes are not tried. An
// entry of the file that fits no change is an error.
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

// options are the settings of one run.
type options struct {
	sample   int // number of mutants to try; 0 means all
	seed     uint64
	only     *regexp.Regexp // matches Mutant.String of the mutants to try
	skip     *regexp.Regexp // matches the names of tests that don't run; nil matches no test
	workers  int
	checks   int     // how many cases each property draws
	slow     float64 // tests that take more seconds of processor time don't run
	patience int     // seconds of processor time that are added to the limit of a run; see cpuFactor
	packages []string
	progress io.Writer

	equivalents string // content of equivalents.txt
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

// run is main with its inputs and outputs as parameters. It returns the exit code: 0 if there is a score, however low
// it is, and 1 after an error.
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

// choose draws the sample from the mutants that o.only matches. It shuffles these mutants by o.seed, and returns the
// first o.sample of them.
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

// report prints the score of each package in the sample, the score of the whole sample, and the size of the sample.
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
