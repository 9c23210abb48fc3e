package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// maxKept is the maximum number of bytes that are kept of a test's output. The end of the output is kept, because the
// end explains a failure.
const maxKept = 256 << 10

// event is one line of the output of go test -json. The command go doc test2json describes its fields.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// testID names a test. If its field test is empty, it names the whole package.
type testID struct{ pkg, test string }

func (id testID) String() string {
	if id.test == "" {
		return id.pkg
	}
	return id.pkg + "/" + id.test
}

type skip struct {
	id     testID
	reason string
}

// failure is a failed test, with the lines that the test itself logged.
type failure struct {
	id    testID
	lines []string
}

// report counts and prints the results. It is not safe for concurrent use.
type report struct {
	out      io.Writer
	running  map[testID]*strings.Builder // output of tests and packages that have not finished yet
	skips    []skip
	packages int
	passed   int
	failed   int
	passes   map[testID]int
	failedIn map[string]int // number of failures, by package
	parallel map[testID]bool
	failures []failure
	flaky    []testID // tests and packages that failed, and passed when they ran again
	cut      bool     // a test panicked, or a package that is not in crashed ended before its tests did
	crashed  []string // packages that ended because of a signal outside Go code
	errs     []error  // errors of go test itself
}

func newReport(out io.Writer) *report {
	return &report{out: out, running: map[testID]*strings.Builder{},
		passes: map[testID]int{}, failedIn: map[string]int{}, parallel: map[testID]bool{}}
}

// broken records an error of go test itself. The run then fails even if all tests passed.
func (r *report) broken(err error) { r.errs = append(r.errs, err) }

// read reads events until the end of in. Lines that are not events come from the go command. They are printed
// unchanged.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line string) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(r.out, line)
		return
	}
	r.take(e)
}

func (r *report) take(e event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "start", "run":
		r.running[id] = &strings.Builder{}
	case "pause":
		r.parallel[id] = true
	case "output":
		r.keep(id, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(id, e)
		} else {
			r.endTest(id, e.Action)
		}
	}
}

// keep adds text to the output of a test or package. If the output would exceed maxKept, keep first drops the first
// half of the previous output.
func (r *report) keep(id testID, text string) {
	b := r.running[id]
	if b == nil {
		b = &strings.Builder{}
		r.running[id] = b
	}
	if b.Len()+len(text) > maxKept {
		tail := b.String()
		tail = tail[len(tail)/2:]
		b.Reset()
		b.WriteString("... (the beginning is cut)\n" + tail)
	}
	b.WriteString(text)
}

func (r *report) endTest(id testID, action string) {
	text := r.output(id)
	switch action {
	case "pass":
		r.passed++
		r.passes[id]++
	case "skip":
		r.skips = append(r.skips, skip{id, reasonOf(text)})
	case "fail":
		r.fail(id, text)
		r.cut = r.cut || strings.Contains(text, "\npanic: ")
		fmt.Fprint(r.out, text)
	}
}

// endPackage prints the line of a package that has finished, or nothing if the package has no tests. If the package
// failed, tests that did not finish because of a panic or a time-out are counted as failed, and their output is
// printed.
func (r *report) endPackage(id testID, e event) {
	r.packages++
	text := r.output(id)
	if e.Action != "fail" {
		if e.Action == "pass" {
			fmt.Fprintf(r.out, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		}
		return
	}
	crashed := foreignSignal.MatchString(text)
	unfinished := r.unfinished(e.Package)
	for _, left := range unfinished {
		said := r.output(left)
		crashed = crashed || foreignSignal.MatchString(said)
		r.fail(left, said)
		fmt.Fprintf(r.out, "%s--- FAIL: %s (did not end)\n", said, left.test)
	}
	switch {
	case crashed:
		r.crashed = append(r.crashed, e.Package)
	case len(unfinished) > 0:
		r.cut = true
	}
	fmt.Fprint(r.out, text)
	if r.failedIn[e.Package] == 0 {
		r.fail(id, "") // the package did not build, or failed outside its tests
	}
	fmt.Fprintf(r.out, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
}

// output returns the output of a test or package, and removes it from r.running.
func (r *report) output(id testID) string {
	b := r.running[id]
	delete(r.running, id)
	if b == nil {
		return ""
	}
	return b.String()
}

// fail records the failure of a test or a package with its output.
func (r *report) fail(id testID, text string) {
	r.failed++
	r.failedIn[id.pkg]++
	r.failures = append(r.failures, failure{id, ownLines(text)})
}

// foreignSignal matches the Go runtime's message about a signal that arrived outside Go code. The tests have no C code
// of their own, so the message means that the race detector's library crashed.
var foreignSignal = regexp.MustCompile(`(?m)^SIG[A-Z]+: .*\nPC=0x[0-9a-f]+ m=\d+ sigcode=`)

func (r *report) unfinished(pkg string) []testID {
	var left []testID
	for id := range r.running {
		if id.pkg == pkg && id.test != "" {
			left = append(left, id)
		}
	}
	sort.Slice(left, func(i, j int) bool { return left[i].test < left[j].test })
	return left
}

// finish prints the end of the report: failures with a few lines of output, flaky tests, skips, skips that are not
// allowed, errors of go test itself, and the numbers of results. It returns true if the run succeeded.
func (r *report) finish(label string, allowed allowList) bool {
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "failed %s\n", f.id)
		for _, line := range f.lines {
			fmt.Fprintf(r.out, "    %s\n", line)
		}
	}
	for _, id := range r.flaky {
		fmt.Fprintf(r.out, "flaky %s: it passed when it ran again by itself; mend it\n", id)
	}
	for _, s := range r.skips {
		fmt.Fprintf(r.out, "skipped %s: %s\n", s.id, s.reason)
	}
	refused := allowed.refuse(r.skips)
	for _, s := range refused {
		fmt.Fprintf(r.out, "FAIL  %s must not skip here; mend the machine, or name it in the list with a reason\n", s.id)
	}
	if r.packages == 0 && len(r.errs) == 0 {
		r.broken(fmt.Errorf("no package was tested"))
	}
	for _, err := range r.errs {
		fmt.Fprintln(r.out, "FAIL ", err)
	}
	failed := r.failed + len(refused) + len(r.errs)
	skipped := len(r.skips) - len(refused)
	fmt.Fprintf(r.out, "%s: %d passed, %d failed, %d skipped\n", label, r.passed, failed, skipped)
	return failed == 0
}

// ownLine matches a line that a test printed with t.Log, t.Error or similar.
var ownLine = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

// firstLines and lastLines are how many of a failed test's own lines are repeated at the end of the report. The first
// lines may show the seed of a random test, and the last lines the error.
const firstLines, lastLines = 4, 12

// ownLines returns the lines that the test itself printed, without the logs of the code under test. It leaves out the
// middle if there are more than firstLines+lastLines such lines.
func ownLines(text string) []string {
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if ownLine.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) > firstLines+lastLines {
		lines = slices.Delete(lines, firstLines, len(lines)-lastLines)
	}
	return lines
}

// reasonOf returns the reason given to t.Skip: the last line of the output that does not come from package testing.
func reasonOf(text string) string {
	reason := "no reason given"
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		reason = line
	}
	return reason
}
