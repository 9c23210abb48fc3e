package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/local"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// Codes of errors that the command line itself returns, not a server.
const (
	codeNotAllPlaced model.Code = "not_all_placed"
	codeEndedFailed  model.Code = "ended_failed"
	codeWaitTimedOut model.Code = "wait_timed_out"
	codeCanceled     model.Code = "drain_canceled"
)

// outcomes has the exit codes of error codes for which api.ExitOf does not apply.
var outcomes = map[model.Code]term.ExitCode{
	codeNotAllPlaced: term.ExitNotAllPlaced,
	codeEndedFailed:  term.ExitFailed,
	codeWaitTimedOut: term.ExitWaitTimeout,
	codeCanceled:     term.ExitOther,
	codeNotVerified:  term.ExitTransient,

	codeCommandFailed: term.ExitOther,
	codeNotReturned:   term.ExitOther,

	local.CodeStartFailed: term.ExitOther,

	// The servers refuse a job with these codes if it fits nowhere.
	model.CodeNoMemory:     term.ExitNotAllPlaced,
	model.CodeNoPorts:      term.ExitNotAllPlaced,
	model.CodeNoNodes:      term.ExitNotAllPlaced,
	model.CodeNoRuntime:    term.ExitNotAllPlaced,
	model.CodeRuntimeDown:  term.ExitNotAllPlaced,
	model.CodeNoNetwork:    term.ExitNotAllPlaced,
	model.CodeConstraint:   term.ExitNotAllPlaced,
	model.CodeAntiAffinity: term.ExitNotAllPlaced,
	model.CodeVolumeNoNode: term.ExitNotAllPlaced,
}

func exitOf(err error) term.ExitCode {
	var q term.Quiet
	var known *model.Error
	switch {
	case err == nil:
		return term.ExitOK
	case errors.As(err, &q):
		return q.Code
	case errors.As(err, &known):
		if code, ok := outcomes[known.Code]; ok {
			return code
		}
		return term.ExitCode(api.ExitOf(known.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return term.ExitTransient
	}
	return term.ExitOther
}

// finish prints err on stderr and returns the exit code. It prints nothing after Ctrl-C, or if err is a term.Quiet.
func (a *app) finish(ctx context.Context, err error) int {
	if err == nil {
		return int(term.ExitOK)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return int(term.ExitInterrupted)
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeUnauthenticated && a.conn.login {
		err = model.Refuse(refusal.Code, "%s", refusal.Message).WithHint("sign in again: outspan login")
	}
	code := exitOf(err)
	if !errors.As(err, new(term.Quiet)) {
		report(a.Err, err, a.Output.Asked)
	}
	return int(code)
}

// failure is an error as JSON on stderr.
type failure struct {
	Code      model.Code `json:"code"`
	Message   string     `json:"message"`
	Hint      string     `json:"hint"`
	Retryable bool       `json:"retryable"`
	Index     uint64     `json:"index"`
	// NextAllowed is the time from which a budget's rate allows the next stop.
	NextAllowed *time.Time `json:"next_allowed,omitempty"`
}

func describe(err error) failure {
	f := failure{Code: "error", Message: err.Error()}
	var known *model.Error
	var problem *api.Problem
	switch {
	case errors.As(err, &problem):
		f.Index, f.NextAllowed = problem.Index, problem.NextAllowed
		known = &model.Error{Code: problem.Code, Message: problem.Message, Hint: problem.Hint}
	case errors.As(err, &known):
	case errors.Is(err, context.DeadlineExceeded):
		known = model.Refuse(model.CodeTimeout, "no answer in time").WithHint("try again; see: outspan server members")
	}
	if known != nil {
		f.Code, f.Message, f.Hint, f.Retryable = known.Code, known.Message, known.Hint, api.Retryable(known.Code)
	}
	return f
}

// report prints an error with its code and its hint, as text for people or as one line of JSON.
func report(w io.Writer, err error, asJSON bool) {
	f := describe(err)
	if asJSON {
		line, _ := json.Marshal(f) // can't fail: JSON can express every field
		fmt.Fprintf(w, "%s\n", line)
		return
	}
	text := term.Printable(f.Message)
	if f.Code != "error" {
		text += fmt.Sprintf(" (%s)", f.Code)
	}
	fmt.Fprintf(w, "error: %s\n", text)
	if f.Hint != "" {
		fmt.Fprintf(w, "  next: %s\n", strings.ReplaceAll(term.Printable(f.Hint), "\n", "\n        "))
	}
}

// isCode reports whether err is or wraps a *model.Error with this code.
func isCode(err error, code model.Code) bool {
	var known *model.Error
	return errors.As(err, &known) && known.Code == code
}

type exitLine struct {
	code    term.ExitCode
	meaning string
}

func exitTable() []exitLine {
	return []exitLine{
		{term.ExitOK, "done"},
		{term.ExitOther, "another error"},
		{term.ExitCode(api.ExitUsage), "wrong usage, an invalid file"},
		{term.ExitCode(api.ExitForbidden), "not allowed"},
		{term.ExitCode(api.ExitNotFound), "not found, or a prefix that fits more than one"},
		{term.ExitCode(api.ExitConflict), "conflict with what is there"},
		{term.ExitTransient, "transient: try again"},
		{term.ExitCode(api.ExitInternal), "internal error"},
		{term.ExitHasChanges, "the plan has changes (with `--exit-code`)"},
		{term.ExitNotAllPlaced, "not all can be placed"},
		{term.ExitFailed, "a drain or deployment ended Failed"},
		{term.ExitWaitTimeout, "waiting timed out; the work goes on"},
		{term.ExitInterrupted, "Ctrl-C"},
	}
}
