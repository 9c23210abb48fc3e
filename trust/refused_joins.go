package trust

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

const (
	joinLines  = 10 // refused joins that are logged in each period
	joinPeriod = time.Minute
)

// JoinRefusals returns the codes of refused joins that are counted, and of refused returns with an expired certificate.
// Errors of the cluster, such as no_leader, have others.
func JoinRefusals() []model.Code {
	return []model.Code{model.CodeInvalid, model.CodeForbidden, model.CodeNameTaken, model.CodeMemberRevoked,
		model.CodeTokenInvalid, model.CodeTokenExpired, model.CodeTokenUsed, model.CodeTokenRevoked, model.CodeTokenRole,
		model.CodeTokenName, model.CodeConflict, model.CodeRateLimited, model.CodeApprovalRejected,
		model.CodeCertificateRefused, model.CodeNodeTaken, model.CodeStale, model.CodeNotFound}
}

// joinLog logs refused joins, at most joinLines in joinPeriod. Strangers may send any number of them. The zero value is
// ready to use. Safe for concurrent use.
type joinLog struct {
	mu     sync.Mutex
	lines  int // logged in this period
	silent int // not logged in this period
}

// take reports whether one more refusal may be logged.
func (l *joinLog) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines >= joinLines {
		l.silent++
		return false
	}
	l.lines++
	return true
}

// next begins a period, and returns how many refusals were not logged in the one before.
func (l *joinLog) next() (silent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silent = l.silent
	l.lines, l.silent = 0, 0
	return silent
}

// run begins a period each joinPeriod, until ctx ends.
func (l *joinLog) run(ctx context.Context, log hclog.Logger) {
	tick := time.NewTicker(joinPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if n := l.next(); n > 0 {
				log.Warn("more joins were refused and not logged", "not_logged", n, "in", joinPeriod)
			}
		case <-ctx.Done():
			return
		}
	}
}

// noteRefusedJoin counts and logs a refused join or return. The log has the id of the token, which is no secret, and
// the name that the newcomer or the agent asked for.
func (e *Engine) noteRefusedJoin(source net.Addr, r transport.JoinRequest, err error) {
	refusal, ok := errors.AsType[*model.Error](err)
	if !ok || !slices.Contains(JoinRefusals(), refusal.Code) {
		return
	}
	e.cfg.JoinRefused(refusal.Code)
	if !e.refusedJoins.take() {
		return
	}
	id, name := "", ""
	if token, bad := pki.ParseJoinToken(r.Token); bad == nil {
		id = token.ID()
	}
	what, requests := "a join was refused", map[pki.Role][]byte{pki.RoleServer: r.Server, pki.RoleAgent: r.Agent}
	if r.Rejoin != nil {
		what = "a return with an expired certificate was refused"
		requests = map[pki.Role][]byte{pki.RoleAgent: r.Rejoin.Request}
	}
	for role, der := range requests {
		if request, bad := pki.ParseRequest(der, role); len(der) > 0 && bad == nil {
			name = request.Name
		}
	}
	e.log.Warn(what, "source", transport.HostOf(source), "token", id, "name", name, "code",
		refusal.Code, "error", model.Reason(err))
}
