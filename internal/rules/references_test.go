package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	document = regexp.MustCompile(`[\w./-]*\w\.md\b`)
	numbered = regexp.MustCompile(`(?i)\bacceptance \d+|\b(?:model|architecture)(?:'s)? (?:section )?\d+|\bsection \d+`)
)

// referenceFindings lists comments that refer to something that is not in the tree: a missing document, or a section
// number. The path of a document starts at the root or at the file's own directory.
func referenceFindings(f goFile, exists func(path string) bool) []string {
	var found []string
	for _, group := range f.file.Comments {
		for _, c := range group.List {
			at := fmt.Sprintf("%s:%d", f.name, f.fset.Position(c.Pos()).Line)
			for _, doc := range document.FindAllString(c.Text, -1) {
				if !exists(doc) && !exists(filepath.Join(filepath.Dir(f.name), doc)) {
					found = append(found, fmt.Sprintf("%s: there is no document %s", at, doc))
				}
			}
			if n := numbered.FindString(c.Text); n != "" {
				found = append(found, fmt.Sprintf("%s: %q is no place in the tree; name a heading of docs/model.md", at, n))
			}
		}
	}
	return found
}

func TestReferences(t *testing.T) {
	root, err := treeRoot()
	if err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	}
	for _, f := range goFiles(t) {
		none(t, referenceFindings(f, exists))
	}
}

func TestReferenceFindings(t *testing.T) {
	exists := func(path string) bool { return path == "docs/model.md" || path == "a/DESIGN.md" }
	tests := []struct {
		comment string
		want    []string
	}{
		{"see docs/model.md, and DESIGN.md", nil},
		{"see engines.md", []string{"a/a.go:3: there is no document engines.md"}},
		{"by the model's section 6", []string{`a/a.go:3: "model's section 6" is no place`}},
		{"proves accept" + "ance 3", []string{"is no place in the tree"}},
	}
	for _, tt := range tests {
		f, err := parseFile("a/a.go", "package a\n\n// "+tt.comment+"\nvar b int\n")
		if err != nil {
			t.Fatal(err)
		}
		want(t, referenceFindings(f, exists), tt.want...)
	}
}
