package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"testing"
)

var apiPath = regexp.MustCompile(`^"/(v1/|readyz|healthz|metrics|openapi)`)

// pathFindings lists paths of the API in the code of the command line, which must call package client instead. Package
// client has one method for each operation.
func pathFindings(s source) []string {
	if !within(s.room(), "internal/cli") {
		return nil
	}
	var found []string
	s.walk(func(n ast.Node) {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && apiPath.MatchString(text.Value) {
			found = append(found, fmt.Sprintf("%s: the path %s: call a method of client", s.at(n), text.Value))
		}
	})
	return found
}

func TestPaths(t *testing.T) {
	for _, s := range tree(t) {
		none(t, pathFindings(s))
	}
}

func TestPathFindingsReadSource(t *testing.T) {
	text := "package cli\nvar all = []string{\"/v1/nodes\",\n\"/readyz\",\n\"/run/outspan/api.sock\"}\n"
	want(t, pathFindings(fixture(t, module+"/internal/cli", text)), "fixture.go:2: the path \"/v1/nodes\"", "fixture.go:3")
	want(t, pathFindings(fixture(t, module+"/client", text)))
}
