package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/outspan/outspan/transport"
)

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// get reads JSON into a map, so that a test sees what a script would.
func get(t testing.TB, c *transport.Client, path string) map[string]any {
	t.Helper()
	raw, _, err := c.Do(t.Context(), http.MethodGet, path, nil, nil)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return decode(t, raw)
}

func post(t testing.TB, c *transport.Client, path string, body any) map[string]any {
	t.Helper()
	raw, _, err := c.Do(t.Context(), http.MethodPost, path, nil, body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	return decode(t, raw)
}

func decode(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	v := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("answer is no JSON object: %v\n%s", err, raw)
	}
	return v
}

// eventually calls ok until it returns true, and fails the test after 15 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen in 15 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func values(query string) url.Values {
	v, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	return v
}

func isTrue(v any) bool {
	b, ok := v.(bool)
	return ok && b
}
