package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Mutant is one change of the product's source.
type Mutant struct {
	ID      int    // from 1, unique in all packages together
	Package string // the package's name, such as fsm
	File    string // relative to the working directory
	Line    int
	Func    string // such as State.Apply; outside a function, the name of the declared variable
	Source  string // the changed source text, on one line
	Change  string // such as "== becomes !="
}

// String returns the mutant's line in the report.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s: %s", m.File, m.Line, m.Func, m.Change, m.Source)
}

// key identifies the mutant in equivalents.txt. It contains no line number, so it stays the same when lines move.
func (m Mutant) key() string {
	return strings.Join([]string{m.Package, m.Func, m.Change, m.Source}, "\t")
}

// findings are the mutants of some packages, and the sources of these packages with all mutants in them.
type findings struct {
	packages []*packages.Package
	mutants  []Mutant
	sources  map[string][]byte // by absolute path; the build uses a source in place of the file at its path, if any
}

// find loads the packages that match patterns and finds all possible mutants. The sources that it returns contain all
// mutants, each behind a switch.
func find(patterns []string) (findings, error) {
	config := &packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
		packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		return findings{}, err
	}
	if packages.PrintErrors(loaded) > 0 {
		return findings{}, fmt.Errorf("%v don't build", patterns)
	}
	here, err := os.Getwd()
	if err != nil {
		return findings{}, err
	}
	all := findings{packages: loaded, sources: map[string][]byte{}}
	for _, p := range loaded {
		for i, file := range p.Syntax {
			name := p.CompiledGoFiles[i]
			source, err := os.ReadFile(name)
			if err != nil {
				return findings{}, err
			}
			short, err := filepath.Rel(here, name)
			if err != nil {
				return findings{}, err
			}
			f := &finder{
				fset: p.Fset, info: p.TypesInfo, pkg: p.Name, file: short, source: source, base: file.FileStart,
				next: len(all.mutants) + 1,
			}
			f.walk(file)
			all.mutants = append(all.mutants, f.mutants...)
			all.sources[name] = f.apply()
		}
	}
	for _, p := range loaded {
		name := filepath.Join(filepath.Dir(p.GoFiles[0]), "mutants_switch.go")
		all.sources[name] = []byte(switchSource(p.Name, len(all.mutants)))
	}
	return all, nil
}

type finder struct {
	fset    *token.FileSet
	info    *types.Info
	pkg     string
	file    string
	source  []byte
	base    token.Pos
	next    int
	in      string // name of the function or variable that is being searched
	mutants []Mutant
	edits   []edit
}

func (f *finder) offset(p token.Pos) int { return int(p - f.base) }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}

// add records a mutant of a node and returns the mutant's ID.
func (f *finder) add(n ast.Node, change string) int {
	id := f.next
	f.next++
	f.mutants = append(f.mutants, Mutant{
		ID: id, Package: f.pkg, File: f.file, Line: f.fset.Position(n.Pos()).Line, Func: f.in,
		Source: strings.Join(strings.Fields(f.text(n)), " "), Change: change,
	})
	return id
}

func (f *finder) walk(file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				f.in = nameOf(d)
				f.body(d.Type, d.Body)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					f.in = v.Names[0].Name
					f.body(nil, v)
				}
			}
		}
	}
}

func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.IndexListExpr:
			of = t.X
		case *ast.Ident:
			return t.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// body finds the mutants in n. If n is the body of a function, the parameter of is the function's type. If n is outside
// all functions, of is nil.
func (f *finder) body(of *ast.FuncType, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			f.body(n.Type, n.Body)
			return false
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.BlockStmt:
			f.statements(of, n.List)
		case *ast.CaseClause:
			f.cases(n)
			f.statements(of, n.Body)
		case *ast.CommClause:
			f.statements(of, n.Body)
		case *ast.IfStmt:
			f.negate(n.Cond, "if negated")
		case *ast.BinaryExpr:
			f.binary(n)
		}
		return true
	})
}

// statements adds mutants that drop a call, an assignment or an increment, or that return zero values. Where a
// statement already returns false, the mutant returns true instead.
func (f *finder) statements(of *ast.FuncType, list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ReturnStmt:
			f.results(of, s)
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok && f.text(call.Fun) != "panic" {
				f.drop(s)
			}
		case *ast.IncDecStmt:
			f.drop(s)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !allBlank(s.Lhs) {
				f.drop(s)
			}
		}
	}
}

func (f *finder) drop(s ast.Stmt) {
	f.wrap(s, fmt.Sprintf("if !mutantIs(%d) { ", f.add(s, "dropped")), " }")
}

func allBlank(list []ast.Expr) bool {
	for _, e := range list {
		if id, ok := e.(*ast.Ident); !ok || id.Name != "_" {
			return false
		}
	}
	return true
}

func (f *finder) results(of *ast.FuncType, s *ast.ReturnStmt) {
	if len(s.Results) == 0 {
		return
	}
	var zeros []string
	for _, field := range of.Results.List {
		for range max(1, len(field.Names)) {
			zeros = append(zeros, "*new("+f.text(field.Type)+")")
		}
	}
	change := "zero returned"
	if f.allZero(s.Results) {
		if len(zeros) != 1 || zeros[0] != "*new(bool)" {
			return
		}
		change, zeros[0] = "true returned", "true"
	}
	f.before(s, fmt.Sprintf("if mutantIs(%d) { return %s }; ", f.add(s, change), strings.Join(zeros, ", ")))
}

// allZero reports whether every expression is written as the zero value of its type, such as nil, 0 or T{}.
func (f *finder) allZero(list []ast.Expr) bool {
	for _, e := range list {
		tv := f.info.Types[e]
		lit, isLit := e.(*ast.CompositeLit)
		switch {
		case tv.IsNil():
		case tv.Value != nil && isZero(tv.Value):
		case isLit && len(lit.Elts) == 0 && isPlain(tv.Type):
		default:
			return false
		}
	}
	return true
}

func isPlain(t types.Type) bool {
	switch t.Underlying().(type) {
	case *types.Struct, *types.Array:
		return true
	}
	return false
}

func isZero(v constant.Value) bool {
	switch v.Kind() {
	case constant.Bool:
		return !constant.BoolVal(v)
	case constant.String:
		return constant.StringVal(v) == ""
	case constant.Int, constant.Float:
		return constant.Sign(v) == 0
	}
	return false
}

// cases adds mutants that negate the conditions of a case, such as those of a switch without a tag.
func (f *finder) cases(c *ast.CaseClause) {
	for _, e := range c.List {
		if b, ok := f.info.TypeOf(e).Underlying().(*types.Basic); ok && b.Info()&types.IsBoolean != 0 {
			f.negate(e, "case negated")
		}
	}
}

// negate adds a mutant that negates a condition. It skips constants. It also skips == and !=, because binary adds the
// same mutants for them.
func (f *finder) negate(e ast.Expr, change string) {
	if b, ok := e.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	if f.info.Types[e].Value == nil {
		f.wrap(e, fmt.Sprintf("mutantNot(%d, ", f.add(e, change)), ")")
	}
}

func (f *finder) binary(e *ast.BinaryExpr) {
	if f.info.Types[e].Value != nil {
		return
	}
	call := func(name, becomes, between, end string) {
		id := f.add(e, e.Op.String()+" becomes "+becomes)
		f.wrap(e, fmt.Sprintf("%s(%d, ", name, id), end)
		f.edits = append(f.edits, edit{at: f.offset(e.OpPos), cut: len(e.Op.String()), text: between, kind: instead})
	}
	switch e.Op {
	case token.EQL, token.NEQ:
		becomes := map[token.Token]string{token.EQL: "!=", token.NEQ: "=="}[e.Op]
		f.wrap(e, fmt.Sprintf("mutantNot(%d, ", f.add(e, e.Op.String()+" becomes "+becomes)), ")")
	case token.LSS:
		call("mutantLess", "<=", ",", ")")
	case token.LEQ:
		call("mutantAtMost", "<", ",", ")")
	case token.GTR:
		call("mutantMore", ">=", ",", ")")
	case token.GEQ:
		call("mutantAtLeast", ">", ",", ")")
	case token.LAND:
		call("mutantAnd", "||", ", func() bool { return (", ") })")
	case token.LOR:
		call("mutantOr", "&&", ", func() bool { return (", ") })")
	case token.ADD, token.SUB:
		if b, ok := f.info.TypeOf(e).Underlying().(*types.Basic); !ok || b.Info()&types.IsNumeric == 0 {
			return
		}
		if e.Op == token.ADD {
			call("mutantPlus", "-", ",", ")")
		} else {
			call("mutantMinus", "+", ",", ")")
		}
	}
}
