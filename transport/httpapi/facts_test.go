package httpapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/api"
)

// Facts are texts. They are encoded as JSON booleans, numbers or strings, and decoded to the same texts.
func TestFactsAreTyped(t *testing.T) {
	facts := api.Facts{
		"leader": "true", "in_sync": "false", "term": "7", "lag": "-1.5", "big": "18446744073709551615", "release": "1.10",
		"commit": "0123", "name": "a", "odd": "NaN", "power": "1e3", "hex": "0x10",
	}
	got, err := json.Marshal(facts)
	if err != nil {
		t.Fatal(err)
	}
	want :=
		`{"big":18446744073709551615,"commit":"0123","hex":"0x10","in_sync":false,"lag":-1.5,"leader":true,"name":"a",` +
			`"odd":"NaN","power":"1e3","release":"1.10","term":7}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back api.Facts
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(facts, back); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if got, err := json.Marshal(api.Facts(nil)); err != nil || string(got) != "{}" {
		t.Errorf("without facts: got %s, %v", got, err)
	}
}
