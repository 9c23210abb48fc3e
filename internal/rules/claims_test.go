package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// claim says that a test proves a requirement. It is a comment line with "proves" and the ids, separated by spaces or
// commas; more text may follow after a colon. It is in the doc comment of a test, or directly above a subtest: above
// t.Run("Name", ...) or the entry {"Name", ...} of a table. If such a table names a function, that function's doc
// comment can have the claim for its subtest. A scenario or script has the same line after "#".
type claim struct{ id, dir, test string }

var (
	claimLine  = regexp.MustCompile(`^proves ([A-Z][0-9]+(?:,? [A-Z][0-9]+)*)[.:]?(?: .*)?$`)
	claimLike  = regexp.MustCompile(`\bproves,? [PLBARXS][0-9]`)
	claimIDs   = regexp.MustCompile(`[A-Z][0-9]+`)
	proverFunc = regexp.MustCompile(`^(Test|Fuzz|Example)[A-Z]`)
	oddInName  = regexp.MustCompile(`\s`)
)

// claims returns all claims of the tree. The result findings describes lines that look like claims but have the wrong
// form, and claims that belong to no test.
func claims(root string) (all []claim, findings []string, err error) {
	dirs := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		switch base := filepath.Base(dir); {
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(path, "_test.go") && base != "testdata":
			dirs[dir] = true
		case !d.IsDir() && strings.HasSuffix(path, ".txt") && base == "testdata":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			got, bad := textClaims(filepath.Dir(dir), d.Name(), string(text))
			all, findings = append(all, got...), append(findings, bad...)
		}
		return nil
	})
	for dir := range dirs {
		files, _ := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		set := token.NewFileSet()
		var parsed []*ast.File
		for _, path := range files {
			f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return nil, nil, err
			}
			parsed = append(parsed, f)
		}
		got, bad := goClaims(set, dir, parsed)
		all, findings = append(all, got...), append(findings, bad...)
	}
	return all, findings, err
}

func textClaims(dir, name, text string) (all []claim, findings []string) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			continue
		}
		ids, bad := readClaim(comment)
		if bad {
			findings = append(findings, fmt.Sprintf("%s/testdata/%s:%d: no readable claim: %s", dir, name, n, comment))
		}
		for _, id := range ids {
			all = append(all, claim{id, dir, name})
		}
	}
	return all, findings
}

// readClaim returns the ids that a comment line claims. The result bad is true if the line looks like a claim but has
// the wrong form.
func readClaim(line string) (ids []string, bad bool) {
	line = strings.TrimSpace(line)
	m := claimLine.FindStringSubmatch(line)
	if m == nil {
		return nil, claimLike.MatchString(line)
	}
	return claimIDs.FindAllString(m[1], -1), claimLike.MatchString(line[len("proves "):])
}

func goClaims(set *token.FileSet, dir string, files []*ast.File) (all []claim, findings []string) {
	subtests := tableTests(files)
	for _, f := range files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				ids, bad := readClaim(strings.TrimPrefix(c.Text, "//"))
				at := set.Position(c.Pos())
				where := fmt.Sprintf("%s/%s:%d", dir, filepath.Base(at.Filename), at.Line)
				if bad {
					findings = append(findings, fmt.Sprintf("%s: no readable claim: %s", where, c.Text))
				}
				if len(ids) == 0 {
					continue
				}
				test := claimant(set, f, group, subtests)
				if test == "" {
					findings = append(findings, where+": the claim stands at no test")
					continue
				}
				for _, id := range ids {
					all = append(all, claim{id, dir, test})
				}
			}
		}
	}
	return all, findings
}

// claimant returns the name of the test that a comment belongs to. It returns "" if there is no such test.
func claimant(set *token.FileSet, f *ast.File, group *ast.CommentGroup, subtests map[string]string) string {
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if fn.Doc == group {
			if proverFunc.MatchString(fn.Name.Name) {
				return fn.Name.Name
			}
			return subtests[fn.Name.Name]
		}
		if fn.Body == nil || group.Pos() < fn.Body.Pos() || group.End() > fn.Body.End() {
			continue
		}
		line, name := set.Position(group.End()).Line, ""
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && name == "" && lit.Kind == token.STRING && set.Position(lit.Pos()).Line == line+1 {
				name, _ = strconv.Unquote(lit.Value)
			}
			return name == ""
		})
		if name == "" || !proverFunc.MatchString(fn.Name.Name) {
			return ""
		}
		return fn.Name.Name + "/" + oddInName.ReplaceAllString(name, "_")
	}
	return ""
}

// tableTests finds the entries {"Name", function} in tests. It maps the name of each function to the full name of its
// subtest, Test/Name.
func tableTests(files []*ast.File) map[string]string {
	found := map[string]string{}
	for _, f := range files {
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !proverFunc.MatchString(fn.Name.Name) {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				entry, ok := n.(*ast.CompositeLit)
				if !ok || len(entry.Elts) != 2 {
					return true
				}
				name, ok := entry.Elts[0].(*ast.BasicLit)
				function, named := entry.Elts[1].(*ast.Ident)
				if ok && named && name.Kind == token.STRING {
					text, _ := strconv.Unquote(name.Value)
					found[function.Name] = fn.Name.Name + "/" + oddInName.ReplaceAllString(text, "_")
				}
				return true
			})
		}
	}
	return found
}

// TestReadClaims shows which lines are claims, for which test, and which lines are refused.
func TestReadClaims(t *testing.T) {
	source := `package a

// TestDoc: it works.
// proves P1, P2
func TestDoc(t *testing.T) {
	// proves P3: a subtest
	t.Run("a part", nil)
	for _, part := range []struct{}{
		// proves P4
		{"Entry", nil},
		{"Helped", testHelped},
	} {
	}
}

// testHelped is a part of TestDoc.
// proves P5.
func testHelped(t *testing.T) {}

// proves P6
func helper() {}

// TestOdd is one of those (proves P7).
// proves P8-P9
func TestOdd(t *testing.T) {}
`
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "a_test.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all, findings := goClaims(set, "dir", []*ast.File{f})
	more, bad := textClaims("rec", "a.txt", "# proves P1 S2: text\n# here. proves P2.\nproves P3\n# proves nothing\n")
	all, findings = append(all, more...), append(findings, bad...)
	want := []claim{
		{"P1", "dir", "TestDoc"}, {"P2", "dir", "TestDoc"}, {"P3", "dir", "TestDoc/a_part"}, {"P4", "dir", "TestDoc/Entry"},
		{"P5", "dir", "TestDoc/Helped"}, {"P1", "rec", "a.txt"}, {"S2", "rec", "a.txt"},
	}
	if !slices.Equal(all, want) {
		t.Errorf("claims\n%v, want\n%v", all, want)
	}
	lines := []string{"dir/a_test.go:20", "dir/a_test.go:23", "dir/a_test.go:24", "rec/testdata/a.txt:2"}
	if len(findings) != len(lines) {
		t.Fatalf("findings %q, want those of %q", findings, lines)
	}
	for i, finding := range findings {
		if !strings.HasPrefix(finding, lines[i]+": ") {
			t.Errorf("finding %q, want one at %s", finding, lines[i])
		}
	}
}
