package rules

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFile = 420 // lines of a file; the aim is 150 to 400
	maxFunc = 80  // lines of a function outside tests; the aim is one screen
	maxWide = 120 // columns of a line; a tab counts as one
)

// saysNothing lists names that don't say what a package contains.
var saysNothing = []string{"base", "common", "helper", "helpers", "manager", "misc", "models", "types", "util", "utils"}

var (
	unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)
	directive  = regexp.MustCompile(`//(go:|nolint)`)
)

// layoutFindings lists what makes one file hard to read, or its initialization hard to follow.
func layoutFindings(f goFile) []string {
	var found []string
	add := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s", position(f.fset, n.Pos()), fmt.Sprintf(format, args...)))
	}
	if lines := strings.Count(f.text, "\n"); lines > maxFile {
		add(f.file, "%d lines, at most %d: a second noun lives here", lines, maxFile)
	}
	dirs := strings.Split(path.Dir(f.name), "/")
	if name := strings.TrimSuffix(f.file.Name.Name, "_test"); slices.Contains(saysNothing, name) {
		add(f.file, "package %s says nothing about what is in it", name)
	} else if i := slices.IndexFunc(dirs, func(d string) bool { return slices.Contains(saysNothing, d) }); i >= 0 {
		add(f.file, "directory %s says nothing about what is in it", dirs[i])
	}
	for _, decl := range f.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if fn.Recv == nil && fn.Name.Name == "init" {
			add(fn, "init runs before main and can't be given anything; make it a call or a literal")
		}
		lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line
		if lines > maxFunc && !f.isTest() {
			add(fn, "%s has %d lines, at most %d", fn.Name.Name, lines, maxFunc)
		}
	}
	for _, group := range f.file.Comments {
		if unfinished.MatchString(group.Text()) {
			add(group, "marks unfinished work; finish it, or file it where it is seen")
		}
	}
	return append(found, wideFindings(f)...)
}

// wideFindings lists lines that are too wide. Two kinds of lines may be wider: directives to tools, and lines with a
// raw string, because a raw string can't be split.
func wideFindings(f goFile) []string {
	raw := map[int]bool{}
	ast.Inspect(f.file, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(text.Value, "`") {
			for line := f.fset.Position(text.Pos()).Line; line <= f.fset.Position(text.End()).Line; line++ {
				raw[line] = true
			}
		}
		return true
	})
	var found []string
	for i, line := range strings.Split(f.text, "\n") {
		n := utf8.RuneCountInString(line)
		if n <= maxWide || raw[i+1] || directive.MatchString(line) {
			continue
		}
		found = append(found, fmt.Sprintf("%s:%d: a line of %d columns, at most %d", f.name, i+1, n, maxWide))
	}
	return found
}

func TestLayout(t *testing.T) {
	for _, f := range goFiles(t) {
		none(t, layoutFindings(f))
	}
}

func TestLayoutFindings(t *testing.T) {
	long := strings.Repeat("\n", maxFile)
	tests := []struct {
		name, text string
		want       []string
	}{
		{"a/a.go", "package a\n\nfunc f() {}\n", nil},
		{"a/a.go", "package a\n\nfunc init() {}\n", []string{"a/a.go:3: init runs before main"}},
		{"a/a.go", "package a\n\ntype t int\n\nfunc (t) init() {}\n", nil},
		{"a/a.go", "package a\n" + long, []string{"421 lines"}},
		{"a/a.go", "package a\n\n// " + strings.Repeat("x", maxWide-3) + "\n", nil},
		{"a/a.go", "package a\n\n// " + strings.Repeat("x", maxWide-2) + "\n", []string{"a/a.go:3: a line of 121 columns"}},
		{"a/a.go", "package a\n\nvar a = \"" + strings.Repeat("x", maxWide) + "\"\n",
			[]string{"a/a.go:3: a line of 130 columns"}},
		{"a/a.go", "package a\n\nvar a = `\n" + strings.Repeat("x", maxWide+1) + "`\n", nil},
		{"a/a.go", "package a\n\n//go:generate " + strings.Repeat("x", maxWide) + "\n", nil},
		{"a/a.go", "package a\nfunc f() {\n" + long[:maxFunc] + "}\n", []string{"f has 81 lines"}},
		{"a/a_test.go", "package a\nfunc f() {\n" + long[:maxFunc] + "}\n", nil},
		{"a/a.go", "package util\n", []string{"package util"}},
		{"a/a_test.go", "package types_test\n", []string{"package types"}},
		{"common/a/a.go", "package a\n", []string{"directory common"}},
		{"a/a.go", "package a\n\n// T" + "ODO: more\n", []string{"unfinished"}},
	}
	for _, tt := range tests {
		f, err := parseFile(tt.name, tt.text)
		if err != nil {
			t.Fatal(err)
		}
		want(t, layoutFindings(f), tt.want...)
	}
}
