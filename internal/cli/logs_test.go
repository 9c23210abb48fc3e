package cli

import (
	"bytes"
	"io"
	"testing"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// A log that breaks off because the reader lost the right to it ends with that refusal.
func TestLogEndsWithTheRefusal(t *testing.T) {
	for name, tt := range map[string]struct {
		then error // of the second call
		want model.Code
	}{
		"a revoked token": {model.Refuse(model.CodeUnauthenticated, "the access token ci was revoked"),
			model.CodeUnauthenticated},
		"a role that was taken": {model.Refuse(model.CodeForbidden, "no"), model.CodeForbidden},
		"a lost server":         {model.Refuse(model.CodeUnreachable, "no"), model.CodeUnreachable},
		"a lost connection":     {nil, model.CodeUnreachable},
	} {
		var out bytes.Buffer
		a := &app{Console: term.Console{Out: &out}}
		calls := 0
		err := a.copyLogs(t.Context(), client.LogOptions{Follow: true}, func(o client.LogOptions) (io.ReadCloser, error) {
			if calls++; calls == 1 {
				return io.NopCloser(io.MultiReader(bytes.NewBufferString("tick\n"), cutOff{})), nil
			}
			if o.Follow || o.Tail == nil || *o.Tail != 0 {
				t.Errorf("%s: asks again for %+v", name, o)
			}
			return io.NopCloser(&bytes.Buffer{}), tt.then
		})
		if !isCode(err, tt.want) || out.String() != "tick\n" {
			t.Errorf("%s: %v after %q", name, err, out.String())
		}
	}
}

// cutOff is the end of a stream that broke off.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
