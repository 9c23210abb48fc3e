package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// clocks are the functions of package time that read a clock or wait for one.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTimer": true, "NewTicker": true,
}

// deterministic reports whether the code at n must give the same result for the same input. This rule applies to model,
// fsm, reconcile, the simulation and the judges of histories, except to files for which waits returns true.
func deterministic(s source, n ast.Node) bool {
	rooms := []string{"model", "fsm", "reconcile", "sim", "internal/testbed/invariant"}
	return slices.Contains(rooms, s.room()) && !waits(s, n)
}

// waits reports whether n is in a file that may wait, use clocks and start goroutines.
func waits(s source, n ast.Node) bool {
	file := strings.TrimSuffix(s.file(n), ".go")
	switch s.room() {
	case "fsm":
		// Machine only decides when a state becomes visible. The bytes of a packed snapshot always have the same order.
		return file == "machine" || file == "codec_parts"
	case "reconcile":
		return file == "loop" // the loop waits for changes and time, and then calls the deterministic part
	case "sim":
		return file == "shrink" || strings.HasSuffix(file, "_test") // the shrinking of a history runs for a given time
	}
	return false
}

// determinismFindings lists code that could give different results on two servers that apply the same entry, or on two
// leaders that decide on the same state. Such code uses the order of a map, goroutines, a choice among channels, or a
// clock.
func determinismFindings(s source) []string {
	var found []string
	sorted := map[ast.Expr]bool{} // expressions whose order does not matter, because their elements get sorted
	s.walk(func(n ast.Node) {
		if !deterministic(s, n) {
			return
		}
		if what := disorder(s, n, sorted); what != "" {
			found = append(found, fmt.Sprintf("%s: %s", s.at(n), what))
		}
	})
	return found
}

// collects returns the name of the slice to which a loop appends the keys of a map, or "" if the loop does anything
// else.
func collects(n *ast.RangeStmt) string {
	if n.Value != nil || len(n.Body.List) != 1 {
		return ""
	}
	assign, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Rhs) != 1 {
		return ""
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) != 2 || nameOf(call.Fun) != "append" || nameOf(call.Args[1]) != nameOf(n.Key) ||
		nameOf(call.Args[0]) != nameOf(assign.Lhs[0]) {
		return ""
	}
	return nameOf(call.Args[0])
}

// sorts returns the name of the slice that a statement sorts, or "" if the statement sorts no slice.
func sorts(s source, n ast.Stmt) string {
	expr, ok := n.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	call, ok := expr.X.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return ""
	}
	if pkg, name := callee(s, call); pkg != "slices" || name != "Sort" && name != "SortFunc" {
		return ""
	}
	return nameOf(call.Args[0])
}

// nameOf returns the name of a plain variable or function, or "" for any other expression.
func nameOf(e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// disorder describes what is wrong with a node, or returns "" if nothing is wrong. It records in sorted which of the
// node's children are sorted, so call it for a node before its children.
func disorder(s source, n ast.Node, sorted map[ast.Expr]bool) string {
	switch n := n.(type) {
	case *ast.BlockStmt:
		for i := 1; i < len(n.List); i++ {
			if keys, ok := n.List[i-1].(*ast.RangeStmt); ok && collects(keys) != "" && sorts(s, n.List[i]) == collects(keys) {
				sorted[keys.X] = true
			}
		}
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		if len(n.Body.List) > 1 && !hasDefault(n) {
			return "chooses among channels"
		}
	case *ast.RangeStmt:
		if isMap(s, n.X) && !copiesMap(s, n) && !sorted[n.X] {
			return "ranges over a map; take the keys by slices.Sorted(maps.Keys(m)), or use a Table"
		}
	case *ast.CallExpr:
		pkg, name := callee(s, n)
		switch {
		case pkg == "slices" && strings.HasPrefix(name, "Sorted"):
			sorted[n.Args[0]] = true
		case pkg == "maps" && (name == "Keys" || name == "Values" || name == "All") && !sorted[n]:
			return "iterates over a map in its own order; only slices.Sorted may take that"
		case pkg == "time" && clocks[name]:
			return "looks at a clock; time is a number in the input"
		}
	}
	return ""
}

func isMap(s source, e ast.Expr) bool {
	t := s.info.TypeOf(e)
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// copiesMap reports whether a loop only copies entries to another map under the same keys, which may be converted to
// another type. The order in which the loop copies the entries does not matter.
func copiesMap(s source, n *ast.RangeStmt) bool {
	if len(n.Body.List) != 1 {
		return false
	}
	assign, ok := n.Body.List[0].(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 1 || assign.Tok != token.ASSIGN {
		return false
	}
	index, ok := assign.Lhs[0].(*ast.IndexExpr)
	if !ok || !isMap(s, index.X) {
		return false
	}
	key := index.Index
	if call, ok := key.(*ast.CallExpr); ok && len(call.Args) == 1 && s.info.Types[call.Fun].IsType() {
		key = call.Args[0]
	}
	got, ok := key.(*ast.Ident)
	own, isIdent := n.Key.(*ast.Ident)
	return ok && isIdent && s.info.Uses[got] == s.info.Defs[own]
}

func hasDefault(n *ast.SelectStmt) bool {
	for _, c := range n.Body.List {
		if clause, ok := c.(*ast.CommClause); ok && clause.Comm == nil {
			return true
		}
	}
	return false
}

// callee returns the package path and the name of the called package function. It returns two empty strings for all
// other calls, such as those of methods.
func callee(s source, call *ast.CallExpr) (pkg, name string) {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok { // the call has explicit type arguments
		fun = index.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	f, ok := s.info.Uses[sel.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return "", ""
	}
	return f.Pkg().Path(), f.Name()
}

// clonedFindings lists methods of fsm that are named Copy or IsoCopy. The tree library would call them to clone rows.
func clonedFindings(s source) []string {
	var found []string
	s.walk(func(n ast.Node) {
		f, ok := n.(*ast.FuncDecl)
		if ok && s.room() == "fsm" && f.Recv != nil && (f.Name.Name == "Copy" || f.Name.Name == "IsoCopy") {
			found = append(found, fmt.Sprintf("%s: a method named %s makes the tree library clone rows", s.at(f), f.Name.Name))
		}
	})
	return found
}

func TestDeterminism(t *testing.T) {
	for _, s := range tree(t) {
		none(t, determinismFindings(s))
		none(t, clonedFindings(s))
	}
}

const disorderly = `package x

import (
	"maps"
	"slices"
	"time"
)

type (
	set  map[string]int
	name string
)

func (s set) Copy() set { return s }

func f(m map[string]int, s set, c, d chan int) (n int) {
	for range m {
	}
	for k := range s {
		n += s[k]
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		n += m[k]
	}
	for k := range maps.Keys(m) {
		n += m[k]
	}
	for i, v := range []int{1} {
		n += i + v
	}
	go f(m, s, c, d)
	select {
	case <-c:
	case <-d:
	}
	select {
	case <-c:
	default:
	}
	other := map[name]int{}
	for k, v := range m {
		other[name(k)] = v
	}
	for _, v := range m {
		other["last"] = v
	}
	var keys, others []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for k := range m {
		others = append(others, k)
	}
	slices.Sort(keys)
	if time.Now().IsZero() || time.Duration(n) > time.Second {
		return 1
	}
	return n
}
`

func TestDeterminismFindings(t *testing.T) {
	all := []string{
		"fixture.go:17: ranges over a map", "fixture.go:19: ranges over a map", "fixture.go:25: iterates over a map",
		"fixture.go:31: starts a goroutine", "fixture.go:32: chooses among channels", "fixture.go:44: ranges over a map",
		"fixture.go:52: ranges over a map", "fixture.go:56: looks at a clock",
	}
	want(t, determinismFindings(fixture(t, module+"/fsm", disorderly)), all...)
	want(t, determinismFindings(fixture(t, module+"/reconcile", disorderly)), all...)
	want(t, determinismFindings(fixture(t, module+"/internal/testbed/invariant", disorderly)), all...)
	want(t, determinismFindings(fixture(t, module+"/internal/testbed/memnet", disorderly)))
	want(t, determinismFindings(fixture(t, module+"/agent", disorderly)))
	want(t, clonedFindings(fixture(t, module+"/fsm", disorderly)), "fixture.go:14: a method named Copy")
}
