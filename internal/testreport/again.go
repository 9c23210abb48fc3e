package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// repeatable returns the top-level tests that failed. It returns nil if go test itself failed, a package failed outside
// its tests, or a package stopped before its tests did. In these cases some tests may not have run at all, and a second
// run of the failed ones would prove nothing.
func (r *report) repeatable() []testID {
	if len(r.errs) > 0 || r.cut {
		return nil
	}
	var tests []testID
	for _, f := range r.failures {
		if f.id.test == "" {
			return nil
		}
		if !strings.Contains(f.id.test, "/") {
			tests = append(tests, f.id)
		}
	}
	return tests
}

// repeat runs the given tests once more, one package at a time, with the flags in args. If all of them in a package
// pass, the failures of that package don't count.
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
		run := slices.Concat(flags, []string{"-count=1", "-run", "^(" + strings.Join(names, "|") + ")$", pkg})
		if err := goTest(second, run, stderr); err == nil && second.failed == 0 && second.passed >= len(names) {
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

// firstPackage returns the index of the first package in go test's arguments. Packages come last, and their names
// contain a slash.
func firstPackage(args []string) int {
	i := len(args)
	for i > 0 && strings.Contains(args[i-1], "/") {
		i--
	}
	return i
}
