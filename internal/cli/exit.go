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
	"github.com/outspan/outspan/model"
)

// exitCode is what the process ends with. Scripts rely on the table.
type exitCode int

// The exit codes. 1 to 7 say what kind of error it was: api.ExitOf knows for each code. 20 and above are outcomes
// of work that was done.
const (
	exitOK           exitCode = 0
	exitOther                 = exitCode(api.ExitOther)
	exitTransient             = exitCode(api.ExitTransient)
	exitHasChanges   exitCode = 20  // job plan --exit-code
	exitNotAllPlaced exitCode = 21  // not all can be placed
	exitFailed       exitCode = 22  // a drain or deployment ended Failed
	exitWaitTimeout  exitCode = 23  // waiting ended, the work goes on
	exitInterrupted  exitCode = 130 // Ctrl-C
)

// Codes of outcomes, and of what only the command line can find.
const (
	codeNotAllPlaced model.Code = "not_all_placed"
	codeEndedFailed  model.Code = "ended_failed"
	codeWaitTimedOut model.Code = "wait_timed_out"
	codeCanceled     model.Code = "drain_canceled"
)

// outcomes are the codes that only the command line gives, with the exit code of each.
var outcomes = map[model.Code]exitCode{
	codeNotAllPlaced: exitNotAllPlaced,
	codeEndedFailed:  exitFailed,
	codeWaitTimedOut: exitWaitTimeout,
	codeCanceled:     exitOther,
	codeNotVerified:  exitTransient,

	codeCommandFailed: exitOther,
	codeNotReturned:   exitOther,

	// A job that fits nowhere is refused when it is submitted.
	model.CodeNoMemory:     exitNotAllPlaced,
	model.CodeNoPorts:      exitNotAllPlaced,
	model.CodeNoNodes:      exitNotAllPlaced,
	model.CodeConstraint:   exitNotAllPlaced,
	model.CodeAntiAffinity: exitNotAllPlaced,
	model.CodeVolumeNoNode: exitNotAllPlaced,
}

// quiet is an outcome that needs no words on stderr, because stdout has said it.
type quiet struct{ code exitCode }

func (q quiet) Error() string { return fmt.Sprintf("exit code %d", q.code) }

// exitOf finds the exit code of an error.
func exitOf(err error) exitCode {
	var q quiet
	var known *model.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &q):
		return q.code
	case errors.As(err, &known):
		if code, ok := outcomes[known.Code]; ok {
			return code
		}
		return exitCode(api.ExitOf(known.Code))
	case errors.Is(err, context.DeadlineExceeded):
		return exitTransient
	}
	return exitOther
}

// finish reports err on stderr and gives the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	if err == nil {
		return int(exitOK)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return int(exitInterrupted)
	}
	code := exitOf(err)
	if !errors.As(err, new(quiet)) {
		report(a.err, err, a.output.asked)
	}
	return int(code)
}

// failure is an error as it stands in JSON on stderr.
type failure struct {
	Code      model.Code `json:"code"`
	Message   string     `json:"message"`
	Hint      string     `json:"hint"`
	Retryable bool       `json:"retryable"`
	Index     uint64     `json:"index"`
	// NextAllowed is when a budget's rate allows the next stop.
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

// report says what failed, why (the code), and what to do next.
func report(w io.Writer, err error, asJSON bool) {
	f := describe(err)
	if asJSON {
		line, _ := json.Marshal(f) // strings, a bool and a number: it can't fail
		fmt.Fprintf(w, "%s\n", line)
		return
	}
	text := printable(f.Message)
	if f.Code != "error" {
		text += fmt.Sprintf(" (%s)", f.Code)
	}
	fmt.Fprintf(w, "error: %s\n", text)
	if f.Hint != "" {
		fmt.Fprintf(w, "  next: %s\n", strings.ReplaceAll(printable(f.Hint), "\n", "\n        "))
	}
}

// isCode reports whether err is a refusal of this code.
func isCode(err error, code model.Code) bool {
	var known *model.Error
	return errors.As(err, &known) && known.Code == code
}

// exitLine is a line of the table of exit codes.
type exitLine struct {
	code    exitCode
	meaning string
}

func exitTable() []exitLine {
	return []exitLine{
		{exitOK, "done"},
		{exitOther, "another error"},
		{exitCode(api.ExitUsage), "wrong usage, an invalid file"},
		{exitCode(api.ExitForbidden), "not allowed"},
		{exitCode(api.ExitNotFound), "not found, or a prefix that fits more than one"},
		{exitCode(api.ExitConflict), "conflict with what is there"},
		{exitTransient, "transient: try again"},
		{exitCode(api.ExitInternal), "internal error"},
		{exitHasChanges, "the plan has changes (with `--exit-code`)"},
		{exitNotAllPlaced, "not all can be placed"},
		{exitFailed, "a drain or deployment ended Failed"},
		{exitWaitTimeout, "waiting timed out; the work goes on"},
		{exitInterrupted, "Ctrl-C"},
	}
}
