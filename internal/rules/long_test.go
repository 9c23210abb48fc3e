package rules

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestLongTests: make test skips the tests of e2e that take long, so make systems must name each of them.
func TestLongTests(t *testing.T) {
	t.Run("this tree", func(t *testing.T) {
		makefile, err := os.ReadFile("../../Makefile")
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^LONG +:= (.*)$`).FindSubmatch(makefile)
		if line == nil {
			t.Fatal("Makefile has no line that sets LONG")
		}
		pattern := regexp.MustCompile(strings.ReplaceAll(string(line[1]), "$$", "$"))
		var found []string
		for _, f := range goFiles(t) {
			if path.Dir(f.name) == "e2e" {
				found = append(found, forgottenTests(f, pattern)...)
			}
		}
		none(t, found)
	})
	t.Run("findings", func(t *testing.T) {
		f, err := parseFile("e2e/x_test.go", `package e2e

func TestNamed(t *testing.T)     { long(t) }
func TestForgotten(t *testing.T) { long(t) }
func TestShort(t *testing.T)     { t.Log("long(t)") }
func helper(t *testing.T)        { long(t) }
func long(t *testing.T)          {}
`)
		if err != nil {
			t.Fatal(err)
		}
		want(t, forgottenTests(f, regexp.MustCompile(`^Test(Named)$`)), "TestForgotten calls long",
			"helper calls long, which only a test itself may")
	})
}

// forgottenTests lists the tests in f that call long and that the pattern does not match, and other functions that call
// it, because their callers would be long without a word.
func forgottenTests(f goFile, pattern *regexp.Regexp) []string {
	var found []string
	for _, decl := range f.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || pattern.MatchString(fn.Name.Name) {
			continue
		}
		why := "but LONG in the Makefile does not match it"
		if !strings.HasPrefix(fn.Name.Name, "Test") {
			why = "which only a test itself may"
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "long" {
					found = append(found, fmt.Sprintf("%s: %s calls long, %s", position(f.fset, fn.Pos()), fn.Name.Name, why))
				}
			}
			return true
		})
	}
	return found
}
