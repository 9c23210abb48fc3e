package client_test

import (
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

type operation struct {
	ID         string `json:"operationId"`
	Parameters []struct{ In, Name string }
	Body       struct{ Content map[string]any } `json:"requestBody"`
	Responses  map[string]struct {
		Content map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			}
		}
	}
}

// documented returns the operations of docs/openapi.json, by method and path.
func documented(t *testing.T) map[string]operation {
	t.Helper()
	text, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	all := map[string]operation{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all[strings.ToUpper(method)+" "+path] = op
		}
	}
	return all
}

// matching returns the key in doc of the operation that a request calls, or "" if no operation matches. If several
// match, it returns the one whose path has the fewest parameters.
func matching(doc map[string]operation, r *http.Request) string {
	best := ""
	for key := range doc {
		method, path, _ := strings.Cut(key, " ")
		pattern := "^" + regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, `[^/]+`) + "$"
		if method != r.Method || !regexp.MustCompile(pattern).MatchString(r.URL.EscapedPath()) {
			continue
		}
		if best == "" || strings.Count(key, "{") < strings.Count(best, "{") {
			best = key
		}
	}
	return best
}

// schemaOf returns the name that docs/openapi.json has for the type of an answer, or "" if that type has no name.
func schemaOf(answer any) string {
	of := reflect.TypeOf(answer)
	if of == nil || of.Kind() != reflect.Struct {
		return ""
	}
	if field, ok := of.FieldByName("Value"); ok {
		return field.Type.Name()
	}
	if field, ok := of.FieldByName("Items"); ok {
		return "List" + field.Type.Elem().Name()
	}
	return ""
}
