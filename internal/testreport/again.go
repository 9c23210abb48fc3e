package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// repeatable returns the tests that must run again: each top-level test that failed, or only its failed subtests if
// smallest allows it. For a package in r.crashed it returns the package itself, because tests that had not begun must
// run too. It returns nil if repeated tests would not show the whole result: go test itself failed, a package failed
// outside its tests, or r.cut is true.
func (r *report) repeatable() []testID {
	if len(r.errs) > 0 || r.cut {
		return nil
	}
	var tests []testID
	for _, pkg := range r.crashed {
		tests = append(tests, testID{pkg: pkg})
	}
	for _, f := range r.failures {
		switch {
		case slices.Contains(r.crashed, f.id.pkg):
		case f.id.test == "":
			return nil
		case strings.Contains(f.id.test, "/"):
		default:
			tests = append(tests, r.smallest(f)...)
		}
	}
	return tests
}

// smallest returns the failed subtests of the top-level test f if they are all parallel and have no failed subtests of
// their own, because parallel subtests don't need each other. It returns f itself otherwise, and if f logged anything,
// because f may then have failed by itself.
func (r *report) smallest(f failure) []testID {
	var children []testID
	for _, sub := range r.failures {
		rest, below := strings.CutPrefix(sub.id.test, f.id.test+"/")
		if sub.id.pkg != f.id.pkg || !below {
			continue
		}
		if !r.parallel[sub.id] || strings.Contains(rest, "/") {
			return []testID{f.id}
		}
		children = append(children, sub.id)
	}
	if len(children) == 0 || len(f.lines) > 0 {
		return []testID{f.id}
	}
	return children
}

// repeat runs the given tests and packages once more, one package at a time, with the flags in args. If everything that
// it repeats in a package passes, the package's failures no longer fail the run.
func repeat(r *report, tests []testID, args []string, stderr io.Writer) {
	flags := args[:firstPackage(args)]
	for len(tests) > 0 {
		pkg := tests[0].pkg
		var names []string
		tests = slices.DeleteFunc(tests, func(id testID) bool {
			if id.pkg == pkg {
				names = append(names, id.test)
			}
			return id.pkg == pkg
		})
		fmt.Fprintf(r.out, "again %s: %s\n", pkg, strings.Join(names, " "))
		if slices.Contains(names, "") {
			if second := runAgain(r.out, flags, ".", pkg, stderr); second != nil {
				r.replace(pkg, second)
			}
			continue
		}
		passed := true
		for pattern, names := range patterns(names) {
			second := runAgain(r.out, flags, pattern, pkg, stderr)
			for _, name := range names {
				passed = passed && second != nil && second.passes[testID{pkg, name}] > 0
			}
		}
		if passed {
			r.forgive(pkg, names)
		}
	}
}

// runAgain runs the tests of pkg that pattern chooses, and returns their report, or nil if one of them failed.
func runAgain(out io.Writer, flags []string, pattern, pkg string, stderr io.Writer) *report {
	second := newReport(out)
	err := goTest(second, slices.Concat(flags, []string{"-count=1", "-run", pattern, pkg}), stderr)
	if err != nil || second.failed > 0 {
		return nil
	}
	return second
}

// patterns returns the arguments of -run that together choose the named tests, with the names that each one
// chooses.
func patterns(names []string) map[string][]string {
	chosen := map[string][]string{}
	for _, name := range names {
		parent := name[:strings.LastIndex(name, "/")+1]
		chosen[parent] = append(chosen[parent], name)
	}
	found := map[string][]string{}
	for parent, names := range chosen {
		var last []string
		for _, name := range names {
			last = append(last, regexp.QuoteMeta(name[len(parent):]))
		}
		pattern := "^(" + strings.Join(last, "|") + ")$"
		if parent != "" {
			pattern = "^" + parent[:len(parent)-1] + "$/" + pattern
		}
		found[pattern] = names
	}
	return found
}

// forgive counts the failures in pkg as passes, and lists the tests in names as flaky.
func (r *report) forgive(pkg string, names []string) {
	r.passed += r.failedIn[pkg]
	r.failed -= r.failedIn[pkg]
	for _, name := range names {
		r.flaky = append(r.flaky, testID{pkg, name})
	}
}

// replace replaces the results of the package pkg with those in the report second, and lists the package as flaky.
func (r *report) replace(pkg string, second *report) {
	for id, n := range r.passes {
		if id.pkg == pkg {
			r.passed -= n
		}
	}
	r.passed += second.passed
	r.failed -= r.failedIn[pkg]
	r.skips = slices.DeleteFunc(r.skips, func(s skip) bool { return s.id.pkg == pkg })
	r.skips = append(r.skips, second.skips...)
	r.flaky = append(r.flaky, testID{pkg: pkg})
}

// firstPackage returns the index of the first package in go test's arguments. Packages come last, and their names
// contain a slash.
func firstPackage(args []string) int {
	i := len(args)
	for i > 0 && strings.Contains(args[i-1], "/") {
		i--
	}
	return i
}
