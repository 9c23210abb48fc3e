package client_test

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/duplex"
)

// Every operation of docs/openapi.json has a method. The method calls the operation's path with all its parameters,
// sends a body if the operation takes one, and returns the type that the document names.
func TestEveryOperationHasAMethod(t *testing.T) {
	doc := documented(t)
	type call struct {
		op    string
		query map[string]bool
		body  bool
	}
	var calls []call
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var body []byte
		duplexed := r.Header.Get("Content-Type") == api.ContentTypeDuplex
		if duplexed { // its body ends with its answer
			_ = http.NewResponseController(w).EnableFullDuplex()
			first, _ := duplex.ReadFrame(r.Body)
			body = first.Body
		} else {
			body, _ = io.ReadAll(r.Body)
		}
		query := map[string]bool{}
		for name := range r.URL.Query() {
			query[name] = true
		}
		calls = append(calls, call{matching(doc, r), query, len(body) > 0})
		answer := "{}"
		if r.URL.Path == "/v1/sd/prometheus" {
			answer = "[]"
		}
		if duplexed { // the begin of a forward, and the end of both
			message := duplex.Frame{Kind: duplex.KindMessage, Body: []byte(answer)}
			answer = string(message.Append(message.Append(nil)))
		}
		if r.URL.Path != "/v1/events" {
			_, _ = io.WriteString(w, answer)
		}
	})
	for key, op := range doc {
		if slices.Contains(notForClients, op.ID) {
			continue
		}
		t.Run(op.ID, func(t *testing.T) {
			do, ok := operations[op.ID]
			if !ok {
				t.Fatalf("%s has no method of the client: add it, and its call to the table operations in %s", key,
					"client/calls_test.go")
			}
			calls = nil
			value, err := do(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if stream, ok := value.(io.Closer); ok {
				stream.Close()
			}
			sent := map[string]bool{}
			for _, call := range calls {
				if call.op != key {
					t.Errorf("the method calls %s, want %s", call.op, key)
				}
				maps.Copy(sent, call.query)
				if takes := len(op.Body.Content) > 0; call.body != takes {
					t.Errorf("a body was sent: %v, want %v", call.body, takes)
				}
			}
			for _, p := range op.Parameters {
				if p.In == "query" && p.Name != "next" && !sent[p.Name] {
					t.Errorf("no option sends the parameter %s", p.Name)
				}
				delete(sent, p.Name)
			}
			for name := range sent {
				t.Errorf("the operation has no parameter %s", name)
			}
			want := op.Responses["200"].Content["application/json"].Schema.Ref
			if got := schemaOf(value); want != "" && "#/components/schemas/"+got != want {
				t.Errorf("the method returns %s, want %s", got, want)
			}
		})
	}
	for id := range operations {
		if !slices.ContainsFunc(slices.Collect(maps.Values(doc)), func(op operation) bool { return op.ID == id }) {
			t.Errorf("the table has the operation %q, which is not in docs/openapi.json; if it is new, write that file: "+
				"OUTSPAN_REWRITE=1 go test ./transport/httpapi", id)
		}
	}
}
