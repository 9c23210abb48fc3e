package rules

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// summed are the tables of the state whose rows are summed up by job, and the functions that keep the sums when they
// change a row.
var summed = map[string][]string{
	"Groups":   {"putGroup", "delGroup"},
	"Versions": {"putVersion", "delVersion"},
}

// sumFindings lists where a row of a summed table is changed past the functions that keep the sums of jobs.
func sumFindings(s source) []string {
	if s.room() != "fsm" {
		return nil
	}
	var found []string
	for _, f := range s.files {
		for _, decl := range f.Decls {
			name := ""
			if fn, ok := decl.(*ast.FuncDecl); ok {
				name = fn.Name.Name
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if table := changesSummed(n, name); table != "" {
					found = append(found, fmt.Sprintf("%s: changes a row of %s; call %s, which keep the sums of jobs",
						s.at(n), table, strings.Join(summed[table], " or ")))
				}
				return true
			})
		}
	}
	return found
}

// changesSummed returns the summed table of which n takes put or del, in a function that may not; or "". A method value
// counts as well as a call.
func changesSummed(n ast.Node, function string) string {
	method, ok := n.(*ast.SelectorExpr)
	if !ok || method.Sel.Name != "put" && method.Sel.Name != "del" {
		return ""
	}
	table, ok := ast.Unparen(method.X).(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	keepers, ok := summed[table.Sel.Name]
	for _, keeper := range keepers {
		ok = ok && function != keeper
	}
	if !ok {
		return ""
	}
	return table.Sel.Name
}

func TestSumsOfJobs(t *testing.T) {
	kept := map[string]bool{}
	for _, s := range tree(t) {
		none(t, sumFindings(s))
		s.walk(func(n ast.Node) {
			if fn, ok := n.(*ast.FuncDecl); ok && s.room() == "fsm" {
				kept[fn.Name.Name] = true
			}
		})
	}
	for table, keepers := range summed {
		for _, keeper := range keepers {
			if !kept[keeper] {
				t.Errorf("%s, which keeps the sums of %s, is gone", keeper, table)
			}
		}
	}
}

func TestSumFindings(t *testing.T) {
	const text = `package fsm

type table map[string]int

func (t table) put(k string, v int) { t[k] = v }
func (t table) del(k string)        { delete(t, k) }

type state struct{ Groups, Versions, Jobs table }

func (s *state) putGroup()   { s.Groups.put("a", 1) }
func (s *state) delGroup()   { s.Groups.del("a") }
func (s *state) putVersion() { s.Versions.put("a", 1) }
func (s *state) delVersion() { s.Versions.del("a") }

func (s *state) apply() {
	s.Jobs.put("a", 1)
	s.putGroup()
	s.Groups.put("a", 1)
	(s.Versions).del("a")
	put := s.Versions.put
	put("a", 1)
}

func (s *state) putOther() { func() { s.Groups.del("a") }() }
`
	want(t, sumFindings(fixture(t, module+"/fsm", text)),
		"fixture.go:18: changes a row of Groups; call putGroup or delGroup", "fixture.go:19: changes a row of Versions",
		"fixture.go:20: changes a row of Versions", "fixture.go:24: changes a row of Groups")
	want(t, sumFindings(fixture(t, module+"/reconcile", strings.Replace(text, "package fsm", "package reconcile", 1))))
}
