package rules

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/outspan/outspan"

// source is one package, parsed and type-checked, without its test files.
type source struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
	info  *types.Info
	types *types.Package
}

// room returns the name of the package's room, such as fsm or internal/cli.
func (s source) room() string { return roomOf(s.path) }

// at returns the position of a node as file:line. The file's path starts at the root of the tree.
func (s source) at(n ast.Node) string { return position(s.fset, n.Pos()) }

func (s source) file(n ast.Node) string { return filepath.Base(s.fset.Position(n.Pos()).Filename) }

func (s source) walk(visit func(ast.Node)) {
	for _, f := range s.files {
		ast.Inspect(f, func(n ast.Node) bool {
			if n != nil {
				visit(n)
			}
			return true
		})
	}
}

// roomOf returns the room of a package, or "" if the package is not in this module. A package with its own row in
// arrows is a room. Otherwise the room is the first element of the path, or the first two elements if the first is
// internal.
func roomOf(path string) string {
	rest, ok := strings.CutPrefix(path, module+"/")
	if !ok {
		return ""
	}
	if _, own := arrows[rest]; own {
		return rest
	}
	room, below, _ := strings.Cut(rest, "/")
	if room == "internal" {
		room, _, _ = strings.Cut(below, "/")
		room = "internal/" + room
	}
	return room
}

func position(fset *token.FileSet, pos token.Pos) string {
	p := fset.Position(pos)
	name := p.Filename
	if root, err := treeRoot(); err == nil {
		if rel, err := filepath.Rel(root, name); err == nil && !strings.HasPrefix(rel, "..") {
			name = rel
		}
	}
	return fmt.Sprintf("%s:%d", name, p.Line)
}

// treeRoot returns the directory of go.mod.
var treeRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find go.mod: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
})

// loadTree type-checks every package of the module, once for all tests.
var loadTree = sync.OnceValues(func() ([]source, error) {
	root, err := treeRoot()
	if err != nil {
		return nil, err
	}
	pkgs, err := packages.Load(&packages.Config{
		Dir: root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("load the packages of %s: %w", root, err)
	}
	var all []source
	for _, p := range pkgs {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s does not build: %w", p.PkgPath, p.Errors[0])
		}
		all = append(all, source{p.PkgPath, p.Fset, p.Syntax, p.TypesInfo, p.Types})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no package found below %s", root)
	}
	return all, nil
})

// tree returns the packages of loadTree, and fails the test if they can't be loaded.
func tree(t *testing.T) []source {
	t.Helper()
	all, err := loadTree()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fixture type-checks a file as a package with the given path. The file may import the standard library.
func fixture(t *testing.T, path, text string) source {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "fixture.go", text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Importer: importer.Default()}
	pkg, err := conf.Check(path, fset, []*ast.File{f}, info)
	if err != nil {
		t.Fatal(err)
	}
	return source{path, fset, []*ast.File{f}, info, pkg}
}

// goFile is one Go file of the tree as text and syntax tree. Test files are included.
type goFile struct {
	name string // path from the root of the tree
	text string
	fset *token.FileSet
	file *ast.File
}

func (f goFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

func parseFile(name, text string) (goFile, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	return goFile{name, text, fset, file}, err
}

// goFiles reads every hand-written Go file of the tree, except in testdata, node_modules and hidden directories.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	root, err := treeRoot()
	if err != nil {
		t.Fatal(err)
	}
	var all []goFile
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f, err := parseFile(name, string(text))
		if err == nil && !ast.IsGenerated(f.file) {
			all = append(all, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// none reports each finding as an error of the test.
func none(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// want fails the test unless there are as many findings as parts, and each finding contains the part at the same
// position.
func want(t *testing.T, findings []string, parts ...string) {
	t.Helper()
	if len(findings) != len(parts) {
		t.Fatalf("got %d findings, want %d:\n%s", len(findings), len(parts), strings.Join(findings, "\n"))
	}
	for i, p := range parts {
		if !strings.Contains(findings[i], p) {
			t.Errorf("finding %q does not speak of %q", findings[i], p)
		}
	}
}
