package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Defaults of a newcomer that has to be approved.
const (
	approvalWait = 10 * time.Minute
	askEvery     = 3 * time.Second
)

// admit asks the servers to admit this machine, until they do or refuse it. While a person has to approve it, it asks
// again every o.askEvery for at most o.wait. It does not hold the lock on the data directory meanwhile. asked is false
// if another join was faster. Codes: approval_pending if nobody approved the machine in time, and those of join.
func (o *joinOptions) admit(ctx context.Context, t *term.Console, found *joinState) (asked bool, err error) {
	wait := approval{until: time.Now().Add(o.wait), every: o.askEvery}
	for {
		err = transport.ManagedDir(found.cfg.DataDir).Lock(ctx, func() (err error) {
			if *found, err = o.look(); err != nil || found.stage != stageNew {
				return err
			}
			asked = true
			return o.join(ctx, t, found, wait.pending == nil)
		})
		if again := wait.pause(ctx, t, err); !again {
			return asked, wait.result(err)
		}
	}
}

// approval is the wait of this machine for its approval.
type approval struct {
	until   time.Time
	every   time.Duration
	pending error // what the servers said last; nil until they say that an approval is needed
}

// pause reports whether to ask again after an attempt that ended with err, and waits before that. The first time, it
// says what to do.
func (a *approval) pause(ctx context.Context, t *term.Console, err error) bool {
	left := time.Until(a.until)
	var refusal *model.Error
	switch {
	case !errors.As(err, &refusal) || ctx.Err() != nil:
		return false
	case refusal.Code == model.CodeApprovalPending:
		if a.pending == nil && left > 0 {
			fmt.Fprintf(t.Err, "%s\n", term.Printable(fmt.Sprintf("%s\n  %s\n  asking again for %s; to stop, press Ctrl-C",
				refusal.Message, refusal.Hint, term.Span(left.Round(time.Second)))))
		}
		a.pending = err
	case a.pending == nil || !passing(refusal.Code): // while it waits, the servers may be away for a moment
		return false
	}
	if left <= 0 {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(min(a.every, left)):
		return true
	}
}

// result returns the error of the last attempt. If the servers were away at the end, it says that the machine waits. If
// they prove another CA than before, it says that the token has ended with the CA that it names.
func (a *approval) result(err error) error {
	var refusal *model.Error
	if a.pending != nil && errors.As(err, &refusal) &&
		(refusal.Code == model.CodeApprovalPending || passing(refusal.Code)) {
		errors.As(a.pending, &refusal)
		return model.Refuse(refusal.Code, "%s", refusal.Message).
			WithHint("%s; then run the same outspan join again", refusal.Hint)
	}
	if a.pending != nil && errors.As(err, &refusal) && refusal.Code == model.CodeCertificateRefused {
		return model.Refuse(refusal.Code, "%s", refusal.Message).
			WithHint("if the CA was replaced while this machine waited, its token has ended (see on a server: outspan ca " +
				"status); make another one there: outspan token create; then run outspan join here with that token, and " +
				"approve the same key again")
	}
	return err
}

// passing reports whether a code says that the servers can't answer for a moment.
func passing(code model.Code) bool {
	return slices.Contains([]model.Code{model.CodeUnreachable, model.CodeTimeout, model.CodeBusy, model.CodeNoLeader,
		model.CodeRateLimited, model.CodeNotCaughtUp, model.CodeUnknownOutcome, model.CodeStaleTerm}, code)
}
