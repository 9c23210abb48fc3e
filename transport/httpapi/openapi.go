package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

const schemaPrefix = "#/components/schemas/"

// documentConfig returns a configuration of huma without its default extras: documentation pages, links in answers and
// a path for schemas.
func documentConfig(version string) huma.Config {
	if version == "" {
		version = "dev"
	}
	registry := huma.NewMapRegistry(schemaPrefix, schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[api.Facts](), reflect.TypeFor[factsDocument]())
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "outspan", Version: version,
				Description: "Every answer that is no success is application/problem+json with code, message, hint, " +
					"retryable and index.",
			},
			Components: &huma.Components{Schemas: registry},
		},
		Formats: formats(), DefaultFormat: contentTypeJSON, RejectUnknownQueryParameters: true,
	}
}

// schemaName returns the name of a type's schema. model.Settings needs a name of its own, because the answer that shows
// it, api.Settings, has the name Settings.
func schemaName(t reflect.Type, hint string) string {
	if t == reflect.TypeFor[model.Settings]() {
		return "SettingsValues"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// problemResponse documents the answer of every failed operation.
func problemResponse() *huma.Response {
	return &huma.Response{
		Description: "Why not, by code",
		Content: map[string]*huma.MediaType{
			api.ContentTypeProblem: {Schema: &huma.Schema{Ref: schemaPrefix + "Problem"}}},
	}
}

// bodyDocument documents an optional JSON body. Without a body, the input keeps its zero value.
func bodyDocument(a huma.API, t reflect.Type) *huma.RequestBody {
	schema := a.OpenAPI().Components.Schemas.Schema(t, true, "")
	return &huma.RequestBody{Content: map[string]*huma.MediaType{contentTypeJSON: {Schema: schema}}}
}

func elemType(pointer any) reflect.Type { return reflect.TypeOf(pointer).Elem() }

// document is what the OpenAPI document says about an operation whose handler does not use huma; see plain.
type document struct {
	params []*huma.Param
	body   string // content type of the request's body; "" means no body
	answer string // content type of the answer
	schema any    // a value of the answer's type; nil means bytes
}

// plain makes an operation whose handler does not use huma, such as a stream or a call in CBOR.
func plain(rt route, doc document, h http.Handler) operation {
	return operation{route: rt, handler: h, document: func(r huma.Registry) *huma.Operation {
		op := rt.huma()
		schema := &huma.Schema{Type: huma.TypeString, Format: "binary"}
		if doc.schema != nil {
			schema = r.Schema(reflect.TypeOf(doc.schema), true, "")
		}
		op.Responses["200"] = &huma.Response{Description: "OK",
			Content: map[string]*huma.MediaType{doc.answer: {Schema: schema}}}
		op.Parameters = slices.Concat(doc.params, pathParams(rt.path))
		if doc.body != "" {
			op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
				doc.body: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
			}}
		}
		return &op
	}}
}

func pathParams(path string) []*huma.Param {
	var params []*huma.Param
	for part := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			params = append(params,
				&huma.Param{Name: strings.TrimSuffix(name, "}"), In: "path", Required: true,
					Schema: &huma.Schema{Type: huma.TypeString}})
		}
	}
	return params
}

func params(all ...*huma.Param) []*huma.Param { return all }

func queryParam(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
}

// finishDocument adds the plain operations and the schema of problems to huma's document, and encodes the document. The
// document does not change at run time.
func (s *Server) finishDocument() ([]byte, error) {
	doc := s.huma.OpenAPI()
	registry := doc.Components.Schemas
	registry.Schema(reflect.TypeFor[api.Problem](), true, "")
	for _, op := range s.plainOps {
		doc.AddOperation(op.document(registry))
	}
	schemas := registry.Map()
	delete(schemas, "ErrorModel") // huma's own errors are sent as problems
	delete(schemas, "ErrorDetail")
	return json.Marshal(doc)
}

func (s *Server) openAPI() operation {
	rt := getRoute("openapi", "/openapi.json", "status", "This document")
	rt.allow = forAll
	return plain(rt, document{answer: "application/openapi+json", schema: map[string]any{}},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/openapi+json")
			w.Write(s.document)
		}))
}

// checkQuery refuses query parameters that are not in known. Plain operations call it; for all other operations, huma
// checks the parameters. Code: invalid.
func checkQuery(r *http.Request, known ...string) error {
	for name := range r.URL.Query() {
		found := false
		for _, k := range known {
			found = found || k == name
		}
		if !found {
			refusal := model.Refuse(model.CodeInvalid, "%s: unknown query parameter", clip(name))
			if near := nearest(name, known); near != "" {
				return refusal.WithHint("did you mean %q?", near)
			}
			return refusal
		}
	}
	return nil
}
