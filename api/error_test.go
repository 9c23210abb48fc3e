package api_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// Every code has one HTTP status and one exit code. A Problem does not contain the message of an error without a code.
func TestCodes(t *testing.T) {
	tests := []struct {
		code   model.Code
		status int
		exit   api.ExitClass
	}{
		{model.CodeInvalid, 400, 2}, {model.CodeForbidden, 403, 3}, {model.CodeNotFound, 404, 4},
		{model.CodeConflict, 409, 5},
		{model.CodeNodeNotEligible, 409, 5}, {model.CodeBudgetMinReady, 409, 6}, {model.CodeNoLeader, 503, 6},
		{model.CodeUnknownOutcome, 503, 6},
		{model.CodeInternal, 500, 7}, {model.CodeEventCollected, 410, 4}, {model.CodeTooLarge, 413, 2},
		{"never_heard_of", 409, 5},
	}
	for _, tt := range tests {
		if s, e := api.StatusOf(tt.code), api.ExitOf(tt.code); s != tt.status || e != tt.exit {
			t.Errorf("%s: status %d, exit %d; want %d, %d", tt.code, s, e, tt.status, tt.exit)
		}
	}
	if e := api.ExitOfError(errors.New("x")); e != api.ExitOther {
		t.Errorf("an error without a code exits with %d", e)
	}
	p := api.NewProblem(errors.New("the password is hunter2"))
	if p.Code != model.CodeInternal || strings.Contains(p.Message+p.Hint, "hunter2") {
		t.Errorf("an inner error is shown: %+v", p)
	}
}
