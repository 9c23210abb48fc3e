package reach

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// If the outcome of a write is unknown, the error's hint names the request id with which to repeat the write. Reads,
// and writes that were not sent, keep their error.
func TestUnknownOutcomeNamesTheRequest(t *testing.T) {
	unknown := model.Refuse(model.CodeUnknownOutcome, "the write may or may not have been committed").
		WithHint("try again with the same request id")
	noLeader := model.Refuse(model.CodeNoLeader, "no leader")
	busy, limited := model.Refuse(model.CodeBusy, "no room"), model.Refuse(model.CodeRateLimited, "too many requests")
	unrecorded := model.Refuse(model.CodeAuditUnavailable, "no room for the audit log")
	for name, tt := range map[string]struct {
		err    *model.Error
		method string
		sent   bool
		code   model.Code
		hint   string
	}{
		"a server did not know":      {unknown, http.MethodPost, true, model.CodeUnknownOutcome, "--request-id r1"},
		"it was sent":                {noLeader, http.MethodPost, true, model.CodeUnknownOutcome, "--request-id r1"},
		"it was sent, then busy":     {busy, http.MethodPost, true, model.CodeUnknownOutcome, "--request-id r1"},
		"it was sent, then too many": {limited, http.MethodPost, true, model.CodeUnknownOutcome, "--request-id r1"},
		"it was sent, then no room for the audit log": {unrecorded, http.MethodPost, true, model.CodeUnknownOutcome,
			"--request-id r1"},
		"no room for the audit log": {unrecorded, http.MethodPost, false, model.CodeAuditUnavailable, ""},
		"busy from the beginning":   {busy, http.MethodPost, false, model.CodeBusy, ""},
		"it was not sent":           {noLeader, http.MethodPost, false, model.CodeNoLeader, ""},
		"a read":                    {noLeader, http.MethodGet, true, model.CodeNoLeader, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Request{Method: tt.method, Query: url.Values{"request_id": {"r1"}}}
			var got *model.Error
			if err := r.verdict(tt.err, tt.sent); !errors.As(err, &got) || got.Code != tt.code ||
				!strings.Contains(got.Hint, tt.hint) {
				t.Errorf("got %v (%s), want %s with %q", got, got.Hint, tt.code, tt.hint)
			}
		})
	}
}
