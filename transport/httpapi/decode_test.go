package httpapi

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

func TestNearest(t *testing.T) {
	names := []string{"count", "command", "constraints", "memory_bytes", "id"}
	for word, want := range map[string]string{
		"cuont": "count", "comand": "command", "memory_byte": "memory_bytes", "constraint": "constraints", "ids": "id",
		"x": "", "deadline": "", "": "",
		strings.Repeat("c", 100): "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// Input that is accepted can be encoded and decoded again. Input that is refused gives an error with a code. No input
// causes a panic.
func FuzzDecodeStrict(f *testing.F) {
	for _, seed := range []string{
		`{"name":"web","groups":[{"name":"g","count":1,"exec":{"command":"/x"},"budget":{"min_ready":"50%"},"stop":{"grace":"3s"}}]}`,
		`{"name":"web","groups":[{"namee":1}]}`, `[]`, `{"groups":null}`, `{"a":{"b":[{}]}}`, `{"name":"a"} {"name":"b"}`,
		`{"groups":[`, "\xff", ``, `null`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var spec model.JobSpec
		err := decodeStrict([]byte(text), &spec)
		if _, known := errors.AsType[*model.Error](err); err != nil && !known {
			t.Fatalf("error without a code: %v", err)
		}
		if err != nil {
			return
		}
		again, err := json.Marshal(spec)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		var second model.JobSpec
		if err := decodeStrict(again, &second); err != nil {
			t.Fatalf("what was written can't be read: %v\n%s", err, again)
		}
	})
}
