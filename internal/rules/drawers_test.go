package rules

import (
	"fmt"
	"go/ast"
	"go/types"
	"testing"
)

// A drawer is a struct that fsm.State embeds. It owns tables. Its methods write the rows of these tables and keep their
// indexes up to date.

// drawersOf returns the drawers of State. The result fields maps each field of a drawer to the drawer.
func drawersOf(s source) (fields map[*types.Var]*types.Named, drawers map[*types.Named]bool) {
	fields, drawers = map[*types.Var]*types.Named{}, map[*types.Named]bool{}
	state, ok := s.types.Scope().Lookup("State").(*types.TypeName)
	if !ok {
		return fields, drawers
	}
	all, ok := state.Type().Underlying().(*types.Struct)
	if !ok {
		return fields, drawers
	}
	for f := range all.Fields() {
		drawer, named := f.Type().(*types.Named)
		if !f.Embedded() || !named {
			continue
		}
		tables, ok := drawer.Underlying().(*types.Struct)
		if !ok {
			continue
		}
		drawers[drawer] = true
		for table := range tables.Fields() {
			fields[table] = drawer
		}
	}
	return fields, drawers
}

// drawerFindings lists code that could leave a drawer's indexes out of date: uses of a table's put or del outside the
// methods of the table's drawer, and calls that bypass a method of State. If State and a drawer have methods of the
// same name, only the method of State may call the method of the drawer.
func drawerFindings(s source) []string {
	if s.room() != "fsm" {
		return nil
	}
	fields, drawers := drawersOf(s)
	var found []string
	for _, f := range s.files {
		for _, decl := range f.Decls {
			in := receiverOf(s, decl)
			ast.Inspect(decl, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if table, drawer := writtenTable(s, sel, fields); drawer != nil && drawer != in {
					found = append(found,
						fmt.Sprintf("%s: writes rows of %s; only methods of its drawer %s do", s.at(n), table, drawer.Obj().Name()))
				}
				if method := bypassed(s, sel, drawers); method != "" && method != functionName(decl) {
					found = append(found, fmt.Sprintf("%s: calls %s of a drawer; State.%s does more", s.at(n), method, method))
				}
				return true
			})
		}
	}
	return found
}

// receiverOf returns the type of a method's receiver, or nil if the declaration is not a method.
func receiverOf(s source, decl ast.Decl) *types.Named {
	fn, ok := decl.(*ast.FuncDecl)
	if !ok || fn.Recv == nil {
		return nil
	}
	return namedOf(s.info.TypeOf(fn.Recv.List[0].Type))
}

func functionName(decl ast.Decl) string {
	if fn, ok := decl.(*ast.FuncDecl); ok {
		return fn.Name.Name
	}
	return ""
}

// namedOf returns t or the type that t points to, or nil if this type has no name.
func namedOf(t types.Type) *types.Named {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, _ := types.Unalias(t).(*types.Named)
	return named
}

// writtenTable returns the table whose put or del the selector n names, and the table's drawer. It treats a method
// value like a call. For all other selectors, the drawer is nil.
func writtenTable(s source, n *ast.SelectorExpr, fields map[*types.Var]*types.Named) (string, *types.Named) {
	if n.Sel.Name != "put" && n.Sel.Name != "del" {
		return "", nil
	}
	table, ok := ast.Unparen(n.X).(*ast.SelectorExpr)
	if !ok || s.info.Selections[table] == nil {
		return "", nil
	}
	field, ok := s.info.Selections[table].Obj().(*types.Var)
	if !ok {
		return "", nil
	}
	return field.Name(), fields[field]
}

// bypassed returns the name of the drawer's method that n selects, or "" if State has no method of the same name.
func bypassed(s source, n *ast.SelectorExpr, drawers map[*types.Named]bool) string {
	drawer, ok := ast.Unparen(n.X).(*ast.SelectorExpr)
	if !ok || s.info.Selections[drawer] == nil || !drawers[namedOf(s.info.TypeOf(drawer))] {
		return ""
	}
	state := namedOf(s.info.TypeOf(drawer.X))
	if state == nil {
		return ""
	}
	for m := range state.Methods() {
		if m.Name() == n.Sel.Name {
			return m.Name()
		}
	}
	return ""
}

func TestDrawers(t *testing.T) {
	found := 0
	for _, s := range tree(t) {
		none(t, drawerFindings(s))
		if s.room() == "fsm" {
			_, drawers := drawersOf(s)
			found += len(drawers)
		}
	}
	if found != 7 {
		t.Errorf("State has %d drawers, want 7", found)
	}
}

func TestDrawerFindings(t *testing.T) {
	const text = `package fsm

type table map[string]int

func (t table) put(k string, v int) { t[k] = v }
func (t table) del(k string)        { delete(t, k) }

type fleet struct{ Nodes, names table }
type jobs struct{ Jobs table }

func (f *fleet) putNode() { f.Nodes.put("a", 1); f.names.put("a", 1) }
func (j *jobs) putJob()   { j.Jobs.put("a", 1) }

type State struct {
	fleet
	jobs
	Own table
}

func (s *State) putNode() { s.fleet.putNode() }

func (s *State) apply(other table) {
	s.Own.put("a", 1)
	other.put("a", 1)
	s.putNode()
	s.jobs.putJob()
	s.Nodes.put("a", 1)
	(s.fleet.names).del("a")
	put := s.Jobs.put
	put("a", 1)
	s.fleet.putNode()
}

func (j *jobs) steal(f *fleet) { func() { f.Nodes.del("a") }() }
`
	s := fixture(t, module+"/fsm", text)
	want(t, drawerFindings(s),
		"fixture.go:27: writes rows of Nodes; only methods of its drawer fleet do", "fixture.go:28: writes rows of names",
		"fixture.go:29: writes rows of Jobs", "fixture.go:31: calls putNode of a drawer; State.putNode does more",
		"fixture.go:34: writes rows of Nodes")
	s.path = module + "/reconcile"
	want(t, drawerFindings(s))
}
