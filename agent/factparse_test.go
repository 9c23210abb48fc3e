package agent

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/fsm"
)

func TestParseFacts(t *testing.T) {
	many := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"f%d":%d`, i, i))
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	tests := []struct {
		text  string
		want  facts
		fails string
	}{
		{`{}`, facts{}, ""},
		{` {"leader": true, "in_sync":false} ` + "\n", facts{"leader": "true", "in_sync": "false"}, ""},
		{`{"leader_name":"n2 (v1)","slot.3.leads_shards":false}`,
			facts{"leader_name": "n2 (v1)", "slot.3.leads_shards": "false"}, ""},
		{`{"a":0,"b":-7,"c":18446744073709551615,"d":1.50,"e":15e-1,"f":-0.0,"g":-0,"h":1e3}`,
			facts{"a": "0", "b": "-7", "c": "18446744073709551615", "d": "1.5", "e": "1.5", "f": "0", "g": "0", "h": "1000"},
			""},
		{`{"leader_name":"","leader":false}`, facts{"leader": "false"}, ""},
		{`{"n":"` + strings.Repeat("x", 64) + `"}`, facts{"n": strings.Repeat("x", 64)}, ""},
		{`{"n":"` + strings.Repeat("x", 65) + `"}`, nil, "64"},
		{`{"n":"two\nlines"}`, nil, "printable"},
		{`{"n":"größe"}`, nil, "printable"},
		{``, nil, "not a JSON object"},
		{`true`, nil, "not a JSON object"},
		{`[{"leader":true}]`, nil, "not a JSON object"},
		{`{"leader":true`, nil, "whole"},
		{`{"leader":}`, nil, "whole"},
		{`{"leader":true}{"leader":false}`, nil, "follows"},
		{`{"leader":true} x`, nil, "follows"},
		{`{"leader":true,"leader":false}`, nil, "twice"},
		{`{"leader":null}`, nil, "only true, false"},
		{`{"leader":{"is":true}}`, nil, "only true, false"},
		{`{"leader":[true]}`, nil, "only true, false"},
		{`{"Leader":true}`, nil, "lower-case"},
		{`{"":true}`, nil, "lower-case"},
		{`{"` + strings.Repeat("x", 49) + `":true}`, nil, "48"},
		{`{"n":99999999999999999999}`, nil, "too large"},
		{`{"n":1e300}`, nil, "too large"},
		{`{"n":1e-300}`, nil, "digits"},
		{`{"n":1e999}`, nil, "too large"},
		{many(16), nil, ""},
		{many(17), nil, "more than 16"},
		{`{"n":"` + strings.Repeat("x", 4<<10) + `"}`, nil, "longer than"},
		{"{\"n\":\"\xff\"}", nil, "UTF-8"},
	}
	for _, tt := range tests {
		got, err := parseFacts([]byte(tt.text))
		switch {
		case tt.fails != "":
			if err == nil || got != nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%.60q: %v, %v, want an error with %q", tt.text, got, err, tt.fails)
			}
		case err != nil:
			t.Errorf("%.60q: %v", tt.text, err)
		case tt.want != nil && cmp.Diff(tt.want, got) != "":
			t.Errorf("%.60q: %v, want %v", tt.text, got, tt.want)
		}
	}
}

// No answer of a role check causes a panic. Accepted facts stay within the servers' limits, so the servers drop no
// fact.
func FuzzParseFacts(f *testing.F) {
	for _, s := range []string{`{"leader":true,"index":12,"leader_name":"a"}`, `{"a":1.5e3}`, `{"a":"\u0041"}`,
		`{"a":-0.0}`, `{`, `{"a":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseFacts(text)
		if err != nil {
			if got != nil {
				t.Errorf("%q: facts %v and %v", text, got, err)
			}
			return
		}
		if kept := fsm.CleanFacts(got); len(kept) != len(got) {
			t.Errorf("%q: of %v the servers keep %v", text, got, kept)
		}
		for name, value := range got { // given as a JSON string, the value makes the same fact
			again, err := parseFacts(fmt.Appendf(nil, `{"%s":%s}`, name, strconv.Quote(value)))
			if err != nil || again[name] != value {
				t.Errorf("%q: %s is %q, and then %v %v", text, name, value, again, err)
			}
		}
	})
}
