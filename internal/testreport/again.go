package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// repeatable returns the top-level tests that failed. For a package in r.crashed it returns the package itself, because
// tests that had not begun must run too. It returns nil if repeated tests would not show the whole result: go test
// itself failed, a package failed outside its tests, or r.cut is true.
func (r *report) repeatable() []testID {
	if len(r.errs) > 0 || r.cut {
		return nil
	}
	var tests []testID
	for _, pkg := range r.crashed {
		tests = append(tests, testID{pkg: pkg})
	}
	for _, f := range r.failures {
		if slices.Contains(r.crashed, f.id.pkg) {
			continue
		}
		if f.id.test == "" {
			return nil
		}
		if !strings.Contains(f.id.test, "/") {
			tests = append(tests, f.id)
		}
	}
	return tests
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
		second := newReport(r.out)
		whole, pattern := slices.Contains(names, ""), "^("+strings.Join(names, "|")+")$"
		if whole {
			pattern = "."
		}
		run := slices.Concat(flags, []string{"-count=1", "-run", pattern, pkg})
		switch err := goTest(second, run, stderr); {
		case err != nil || second.failed > 0 || second.passed < len(names):
		case whole:
			r.replace(pkg, second)
		default:
			r.forgive(pkg, names)
		}
	}
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
	r.passed += second.passed - r.passedIn[pkg]
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
