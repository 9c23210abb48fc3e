package agent

import (
	"errors"
	"net/url"
	"testing"

	"github.com/outspan/outspan/model"
)

// FuzzLogQuery: a log query is either refused with a hint, or can be carried out.
func FuzzLogQuery(f *testing.F) {
	for _, q := range []string{"", "stream=stdout&offset=-5", "stream=both&tail=3", "stream=../x", "follow=true",
		"offset=9223372036854775807&stream=stderr", "tail=-1", "stream=stdout&offset=1&tail=1"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := parseLogQuery(values)
		if err != nil {
			if known, ok := errors.AsType[*model.Error](err); !ok || known.Code != model.CodeInvalid || known.Hint == "" {
				t.Fatalf("%q is refused with %v", text, err)
			}
			return
		}
		if len(q.streams) == 0 || len(q.streams) > 1 && q.offset != 0 || q.tail < -1 || q.tail >= 0 && q.offset != 0 {
			t.Fatalf("%q was taken as %+v", text, q)
		}
		for _, s := range q.streams {
			if !s.Valid() {
				t.Fatalf("%q names the stream %q", text, s)
			}
		}
	})
}
