package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// variableFindings reports package variables that code writes to, or whose values change by design (locks, atomics,
// channels, cobra commands). All servers and tests of a process would share these variables, and nobody would own them.
// Tables that are only read, compiled regular expressions and embedded files are allowed.
func variableFindings(s source) []string {
	var found []string
	add := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s", s.at(n), fmt.Sprintf(format, args...)))
	}
	for _, f := range s.files {
		for _, decl := range f.Decls {
			for _, name := range declared(decl) {
				if v, ok := s.info.Defs[name].(*types.Var); ok && mutableType(v.Type()) {
					add(name, "package variable %s is a %s", name.Name, v.Type())
				}
			}
		}
	}
	s.walk(func(n ast.Node) {
		for _, e := range written(s, n) {
			if v := packageVariable(s, e); v != nil {
				add(e, "package variable %s is written", v.Name())
			}
		}
	})
	return found
}

// declared returns the names of the variables that decl declares.
func declared(decl ast.Decl) []*ast.Ident {
	gen, ok := decl.(*ast.GenDecl)
	if !ok || gen.Tok != token.VAR {
		return nil
	}
	var names []*ast.Ident
	for _, spec := range gen.Specs {
		names = append(names, spec.(*ast.ValueSpec).Names...)
	}
	return names
}

// mutableType reports whether the type t, or the type that t points to, is a channel, or a type of package sync,
// sync/atomic or cobra.
func mutableType(t types.Type) bool {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	if _, ok := t.Underlying().(*types.Chan); ok {
		return true
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return false
	}
	path := named.Obj().Pkg().Path()
	return path == "sync" || path == "sync/atomic" || path == "github.com/spf13/cobra"
}

// written returns the expressions that the node n writes to, and those whose address n takes, because other code could
// write through the address.
func written(s source, n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.UnaryExpr:
		// The address of an element is allowed, because code uses it to read a large element without a copy.
		if _, element := ast.Unparen(n.X).(*ast.IndexExpr); n.Op == token.AND && !element {
			return []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		return writtenByCall(s, n)
	}
	return nil
}

func writtenByCall(s source, call *ast.CallExpr) []ast.Expr {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		_, builtin := s.info.Uses[fun].(*types.Builtin)
		if builtin && (fun.Name == "delete" || fun.Name == "clear" || fun.Name == "copy") {
			return call.Args[:1]
		}
	case *ast.SelectorExpr:
		sel := s.info.Selections[fun]
		if sel == nil || sel.Kind() != types.MethodVal || isPointer(s.info.TypeOf(fun.X)) {
			return nil
		}
		if method, ok := sel.Obj().(*types.Func); ok && isPointer(method.Signature().Recv().Type()) && len(sel.Index()) == 1 {
			return []ast.Expr{fun.X}
		}
	}
	return nil
}

func isPointer(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// packageVariable returns the package variable of this module that e is or is a part of. It returns nil if e is
// neither.
func packageVariable(s source, e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.SelectorExpr:
			if v := asPackageVariable(s.info.Uses[x.Sel]); v != nil {
				return v
			}
			e = x.X
		case *ast.Ident:
			return asPackageVariable(s.info.Uses[x])
		default:
			return nil
		}
	}
}

func asPackageVariable(o types.Object) *types.Var {
	v, ok := o.(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() ||
		!strings.HasPrefix(v.Pkg().Path(), module) {
		return nil
	}
	return v
}

func TestPackageVariables(t *testing.T) {
	for _, s := range tree(t) {
		none(t, variableFindings(s))
	}
}

func TestVariableFindings(t *testing.T) {
	s := fixture(t, module+"/agent", `package agent

import (
	"bytes"
	"errors"
	"regexp"
	"sync"
)

var (
	table  = map[string]int{"a": 1}
	errOne = errors.New("one")
	word   = regexp.MustCompile("[a-z]+")
	lock   sync.Mutex
	count  int
	cache  = map[string]int{}
	point  struct{ x int }
	buf    bytes.Buffer
	ready  chan int
	shared int
	list   = []int{1}
)

func f(local map[string]int) (int, error) {
	lock.Lock()
	count++
	cache["a"] = 1
	delete(cache, "a")
	point.x = 2
	buf.WriteString("x")
	local["a"] = table["a"]
	p := &shared
	count := *p + *&list[0]
	count++
	if word.MatchString("a") {
		return count, errOne
	}
	return len(ready), nil
}
`)
	want(t, variableFindings(s),
		"fixture.go:14: package variable lock is a sync.Mutex", "fixture.go:19: package variable ready is a chan",
		"fixture.go:25: package variable lock", "fixture.go:26: package variable count",
		"fixture.go:27: package variable cache",
		"fixture.go:28: package variable cache", "fixture.go:29: package variable point",
		"fixture.go:30: package variable buf",
		"fixture.go:32: package variable shared")
}
