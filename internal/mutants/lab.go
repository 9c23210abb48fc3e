package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lab contains the test binaries of the packages, and the tests in these binaries. It runs tests with one mutant at a
// time.
type lab struct {
	options
	dir      string
	binaries []binary
	tests    []*test // the fastest first
}

// binary is the test binary of one package. It contains all mutants.
type binary struct{ pkg, path, dir string }

// test is one test function of a binary. If the function has many subtests, each subtest is a test of its own.
type test struct {
	binary  binary
	name    string // such as TestScenarios
	sub     string // name of the subtest, such as drain_budget; "" means the whole function
	subs    []string
	checks  int          // how many cases each property draws; 0 means the number that the test sets itself
	seconds float64      // processor time without a mutant
	reaches map[int]bool // the mutants that the test executes, by Mutant.ID
}

// A test function with at least manySubtests subtests is split into its subtests. The scenario tests have that many
// subtests, but a test with a table of cases does not.
const manySubtests = 150

// Limits of one run of tests. A run may take cpuFactor times the processor time that it takes without a mutant, plus
// options.patience. memory is in bytes. deadlock is wall-clock time, and only stops runs that wait forever.
const (
	cpuFactor = 5
	memory    = 6 << 30
	deadlock  = 5 * time.Minute
)

// build writes the changed sources to dir, and builds from them a test binary of each package.
func build(ctx context.Context, dir string, found findings, o options) (*lab, error) {
	replace := map[string]string{}
	for name, source := range found.sources {
		path := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(path, source, 0o600); err != nil {
			return nil, err
		}
		replace[name] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return nil, err
	}
	l := &lab{options: o, dir: dir}
	for _, p := range found.packages {
		b := binary{pkg: p.Name, path: filepath.Join(dir, p.Name+".test"), dir: filepath.Dir(p.GoFiles[0])}
		args := []string{"test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", b.path, p.PkgPath}
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		l.binaries = append(l.binaries, b)
	}
	return l, nil
}

// result is the outcome of one run of tests.
type result struct {
	passed    bool
	exhausted bool    // the run took too much time or memory, or a signal killed it
	seconds   float64 // processor time
	output    []byte
}

// start runs a test with one mutant switched on. If the parameter mutant is 0, no mutant is switched on, and the
// processor time is not limited.
func (l *lab) start(ctx context.Context, t *test, mutant int, env []string, args ...string) (result, error) {
	args = append(args,
		"-test.timeout="+deadlock.String(), "-test.failfast", "-rapid.nofailfile", "-rapid.shrinktime=1ms")
	if t.checks > 0 {
		args = append(args, "-rapid.checks="+strconv.Itoa(t.checks))
	}
	cmd := exec.CommandContext(ctx, t.binary.path, args...)
	cmd.Dir = t.binary.dir
	cmd.Env = append(os.Environ(), append(env, fmt.Sprint("MUTANT=", mutant), fmt.Sprint("MUTANT_MEMORY=", memory))...)
	if mutant != 0 {
		cmd.Env = append(cmd.Env, fmt.Sprint("MUTANT_CPU=", l.patience+int(cpuFactor*t.seconds)))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return result{}, err
	}
	r := result{passed: err == nil, output: out.Bytes()}
	r.seconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && err != nil {
		r.exhausted = status.Signaled() || bytes.Contains(r.output, []byte("panic: test timed out")) ||
			bytes.Contains(r.output, []byte("SIGXCPU")) || bytes.Contains(r.output, []byte("out of memory"))
	}
	return r, nil
}

// record finds the tests and runs each test once without a mutant, to find out which mutants the test reaches. It
// ignores benchmarks, slow tests, and tests that the option -skip matches. It returns an error if a test fails.
func (l *lab) record(ctx context.Context) error {
	var whole []*test
	for _, b := range l.binaries {
		listed, err := l.start(ctx, &test{binary: b}, 0, nil, "-test.list=.")
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(string(listed.output)) {
			if !strings.HasPrefix(name, "Benchmark") && !l.skipped(name) {
				whole = append(whole, &test{binary: b, name: name, checks: l.checks})
			}
		}
	}
	if err := each(ctx, l.workers, whole, l.recordOne); err != nil {
		return err
	}
	var subs []*test
	for _, t := range whole {
		switch {
		case len(t.subs) >= manySubtests:
			for _, sub := range t.subs {
				if l.skipped(t.name + "/" + sub) {
					continue
				}
				subs = append(subs, &test{binary: t.binary, name: t.name, sub: sub, checks: t.checks})
			}
		case t.seconds > l.slow:
			fmt.Fprintf(l.progress, "left out: %s of %s takes %.0f s\n", t.name, t.binary.pkg, t.seconds)
		default:
			l.tests = append(l.tests, t)
		}
	}
	if err := each(ctx, l.workers, subs, l.recordOne); err != nil {
		return err
	}
	l.tests = append(l.tests, subs...)
	sort.SliceStable(l.tests, func(i, k int) bool { return l.tests[i].seconds < l.tests[k].seconds })
	return l.control(ctx)
}

// control runs all tests without a mutant, in the same batches as for a mutant that every test reaches. It returns an
// error if a batch fails.
func (l *lab) control(ctx context.Context) error {
	nothing := Mutant{ID: -1}
	for _, t := range l.tests {
		t.reaches[nothing.ID] = true
	}
	v, err := l.one(ctx, nothing)
	if err == nil && v != survived {
		err = fmt.Errorf("without any change the tests pass one by one and not together: %s", v)
	}
	return err
}

func (l *lab) skipped(name string) bool { return l.skip != nil && l.skip.MatchString(name) }

// subtest matches the direct subtests in the output of a test, but not the inputs of a fuzz test.
var subtest = regexp.MustCompile(`(?m)^ {4}--- PASS: Test[^/\s]*/(\S+) `)

// recordOne runs one test and records the mutants that the test reaches. If the test fails with the reduced number of
// cases, recordOne runs it again with the number that the test sets itself. All later runs of the test use that number,
// too.
func (l *lab) recordOne(ctx context.Context, t *test) error {
	file, err := os.CreateTemp(l.dir, "reached")
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	args := []string{"-test.v", "-test.run=" + pattern(t.name, []string{t.sub})}
	r, err := l.start(ctx, t, 0, []string{"MUTANT_LOG=" + file.Name()}, args...)
	if err == nil && !r.passed {
		t.checks = 0
		r, err = l.start(ctx, t, 0, []string{"MUTANT_LOG=" + file.Name()}, args...)
	}
	if err != nil {
		return err
	}
	if !r.passed {
		return fmt.Errorf("%s of %s fails without any change:\n%s", t.name, t.binary.pkg, r.output)
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return err
	}
	t.seconds, t.reaches = r.seconds, map[int]bool{}
	for _, line := range strings.Fields(string(data)) {
		id, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		t.reaches[id] = true
	}
	for _, sub := range subtest.FindAllStringSubmatch(string(r.output), -1) {
		t.subs = append(t.subs, sub[1])
	}
	return nil
}

// pattern returns the value of -test.run for some subtests of a test. If subs contains only "", the value matches the
// whole test.
func pattern(name string, subs []string) string {
	if len(subs) == 1 && subs[0] == "" {
		return "^" + name + "$"
	}
	quoted := make([]string, len(subs))
	for i, sub := range subs {
		quoted[i] = regexp.QuoteMeta(sub)
	}
	return "^" + name + "$/^(" + strings.Join(quoted, "|") + ")$"
}
