package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
)

// operationDoc has the parts of a documented operation that the tests check.
type operationDoc struct {
	OperationID string `json:"operationId"`
	Summary     string
	Tags        []string
	Parameters  []struct{ Name, In string }
	RequestBody *struct {
		Content map[string]struct{ Schema map[string]any }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema map[string]any }
	}
}

type openAPI struct {
	OpenAPI    string
	Info       struct{ Title, Version string }
	Paths      map[string]map[string]operationDoc
	Components struct{ Schemas map[string]json.RawMessage }
}

// The document at /openapi.json is OpenAPI 3.1 and describes every operation that is served. Every reference in it
// names an existing schema.
func TestOpenAPI(t *testing.T) {
	r := newRig(t)
	text := must2(r.cli().Do(t.Context(), http.MethodGet, "/openapi.json", nil, nil))(t)
	var doc openAPI
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Info.Title != "outspan" || doc.Info.Version != "1.2.3" {
		t.Errorf("document is of %s, %+v", doc.OpenAPI, doc.Info)
	}
	ids := map[string]string{}
	var documented []string
	for path, methods := range doc.Paths {
		for method, op := range methods {
			name := strings.ToUpper(method) + " " + path
			documented = append(documented, name)
			if other, twice := ids[op.OperationID]; twice || op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s: id %q (also of %q), summary %q, tags %v", name, op.OperationID, other, op.Summary, op.Tags)
			}
			ids[op.OperationID] = name
			checkOperation(t, name, path, op)
		}
	}
	sort.Strings(documented)
	routes := r.servers["s1"].api.Routes()
	sort.Strings(routes)
	if !slices.Equal(documented, routes) {
		t.Errorf("documented and served operations differ\ndocumented %v\nserved     %v", documented, routes)
	}
	for _, ref := range references(t, text) {
		if name, ok := strings.CutPrefix(ref, "#/components/schemas/"); !ok || doc.Components.Schemas[name] == nil {
			t.Errorf("reference %s leads nowhere", ref)
		}
	}
	if _, leaked := doc.Components.Schemas["ErrorModel"]; leaked {
		t.Error("the library's own error is documented")
	}
}

// docs/openapi.json is the document that servers of this version serve at /openapi.json.
func TestOpenAPIFile(t *testing.T) {
	const path = "../../docs/openapi.json"
	r := newRig(t)
	served := must2(r.cli().Do(t.Context(), http.MethodGet, "/openapi.json", nil, nil))(t)
	served = bytes.Replace(served, []byte(`"version":"1.2.3"`), []byte(`"version":"dev"`), 1)
	var text bytes.Buffer
	if err := json.Indent(&text, served, "", " "); err != nil {
		t.Fatal(err)
	}
	if rewrite() {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, text.Bytes()) {
		t.Errorf("%s differs from what is served (%v); write it with: OUTSPAN_REWRITE=1 go test ./transport/httpapi",
			path, err)
	}
}

func checkOperation(t *testing.T, name, path string, op operationDoc) {
	t.Helper()
	if op.Responses["default"].Content[api.ContentTypeProblem].Schema["$ref"] != "#/components/schemas/Problem" {
		t.Errorf("%s: errors are not documented", name)
	}
	if len(op.Responses["200"].Content) == 0 {
		t.Errorf("%s: the answer is not documented", name)
	}
	for part := range strings.SplitSeq(path, "/") {
		want, ok := strings.CutPrefix(part, "{")
		want = strings.TrimSuffix(want, "}")
		found := false
		for _, p := range op.Parameters {
			found = found || p.In == "path" && p.Name == want
		}
		if ok && !found {
			t.Errorf("%s: the path's %s is not documented", name, want)
		}
	}
}

// references returns all values of $ref.
func references(t *testing.T, text []byte) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var refs []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				if ref, ok := inner.(string); ok && k == "$ref" {
					refs = append(refs, ref)
				}
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(v)
	if len(refs) < 20 {
		t.Errorf("only %d references: is this the document?", len(refs))
	}
	return refs
}

// The operations that users rely on are served.
func TestContractPaths(t *testing.T) {
	r := newRig(t)
	routes := r.servers["s1"].api.Routes()
	for _, want := range []string{
		"GET /v1/nodes", "GET /v1/nodes/{id}", "POST /v1/nodes/{id}/drain", "GET /v1/drains", "GET /v1/jobs",
		"POST /v1/jobs/{name}/plan",
		"GET /v1/instances", "POST /v1/instances/{id}/evict", "GET /v1/services", "GET /v1/services/{name}",
		"GET /v1/budgets", "GET /v1/classes",
		"GET /v1/settings", "GET /v1/members", "GET /v1/status", "GET /v1/snapshot", "GET /v1/events",
		"GET /v1/sd/prometheus", "GET /healthz",
		"GET /readyz", "GET /metrics", "GET /openapi.json",
	} {
		if !slices.Contains(routes, want) {
			t.Errorf("%s is not served", want)
		}
	}
}
