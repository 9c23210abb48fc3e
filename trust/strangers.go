package trust

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Bounds of the refused requests of newcomers, and of joins that are repeated.
const (
	refusedAtOnce    = 10   // from one source, after a pause
	refusedPerSecond = 1    // from one source
	maxSources       = 4096 // how many sources are remembered; one more, and all are forgotten
)

// strangers limits how often something may happen for one source: 10 times at once, and then once a second. It counts
// refused requests for each transport.SourceOf, see blamed, repeated joins for each token, and returns for each agent.
// Requests that are admitted count nothing, so many machines behind one address can join. It is safe for concurrent
// use.
type strangers struct {
	mu      sync.Mutex
	sources map[string]patience
}

// patience is how many refusals a source had left at a moment. They grow with time.
type patience struct {
	left float64
	at   time.Time
}

func (p patience) now(now time.Time) patience {
	return patience{min(refusedAtOnce, p.left+now.Sub(p.at).Seconds()*refusedPerSecond), now}
}

// allowed reports whether a source may send a request now.
func (s *strangers) allowed(source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known := s.sources[source]
	return !known || p.now(time.Now()).left >= 1
}

// refused counts a refusal.
func (s *strangers) refused(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p, known := s.sources[source]
	if !known {
		if s.sources == nil || len(s.sources) >= maxSources {
			s.sources = map[string]patience{}
		}
		p = patience{refusedAtOnce, now}
	}
	p = p.now(now)
	p.left = max(p.left-1, 0) // requests that run at the same time may be more than the last one that is left
	s.sources[source] = p
}

// take counts one more for a source, unless it is not allowed now.
func (s *strangers) take(source string) bool {
	if !s.allowed(source) {
		return false
	}
	s.refused(source)
	return true
}

// blamed returns the key under which strangers counts a refusal of a request. If the token admits newcomers now, that
// is the address with the token, so that a good token does not wait for what others in its network did. Otherwise it is
// the source.
func (e *Engine) blamed(source net.Addr, r transport.JoinRequest) string {
	if r.Rejoin != nil {
		return e.blamedAgent(source, r.Rejoin)
	}
	token, err := pki.ParseJoinToken(r.Token)
	if err != nil {
		return transport.SourceOf(source)
	}
	state, verifier := e.cfg.Store.Current(), token.Verifier()
	row, refusal := fsm.TokenWith(state, model.TokenID(token.ID()), verifier[:])
	if refusal != nil || row.Used >= row.Uses || max(state.Now, e.cfg.Servers.Now()) >= row.Expires {
		return transport.SourceOf(source)
	}
	return fmt.Sprintf("%s with join token %s", transport.HostOf(source), row.ID)
}

// isStrangers reports whether an error is the newcomer's fault, so that another attempt would get it too.
func isStrangers(err error) bool {
	refusal, ok := errors.AsType[*model.Error](err)
	return ok && slices.Contains([]model.Code{model.CodeInvalid, model.CodeForbidden, model.CodeNameTaken,
		model.CodeMemberRevoked, model.CodeTokenInvalid, model.CodeTokenExpired, model.CodeTokenUsed,
		model.CodeTokenRevoked, model.CodeTokenRole, model.CodeTokenName, model.CodeApprovalRejected}, refusal.Code)
}
