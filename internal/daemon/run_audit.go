package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// openAudit opens the audit log, if the configuration has one. Code: file_error.
func (s *serverPart) openAudit() error {
	s.audited = newAuditMetrics()
	cfg := s.p.cfg.Audit
	if !cfg.On() {
		return nil
	}
	log := s.p.log.Named("audit")
	var sinks []audit.Sink
	add := func(sink audit.Sink, err error) error {
		if err == nil {
			sinks = append(sinks, sink)
		}
		return err
	}
	var failed error
	if cfg.File != "" {
		failed = add(audit.OpenFile(audit.FileConfig{Path: cfg.File, MaxBytes: cfg.MaxBytes, Keep: cfg.Keep, Logger: log}))
	}
	if cfg.Stdout && failed == nil {
		failed = add(audit.Stdout())
	}
	if cfg.Syslog && failed == nil {
		failed = add(audit.Syslog())
	}
	if failed != nil {
		for _, sink := range sinks {
			_ = sink.Close() // nothing was written
		}
		return failed
	}
	s.audit = audit.New(audit.Config{Server: s.p.cfg.Name, Required: cfg.Required, Sinks: sinks, Logger: log,
		Wrote: func(n int) { s.audited.written.Add(float64(n)) }, Lost: func(n int) { s.audited.lost.Add(float64(n)) }})
	return nil
}

// auditMode says whether a server has an audit log, and whether it refuses what can't be recorded.
func auditMode(cfg config.Audit) string {
	switch {
	case !cfg.On():
		return "off"
	case cfg.Required:
		return "on, required"
	}
	return "on"
}

// auditFailing returns why this server can't write its audit log, or "".
func (s *serverPart) auditFailing() string {
	if s.audit == nil {
		return ""
	}
	return s.audit.Failing()
}

// auditMetrics count the lines of the audit log.
type auditMetrics struct{ written, lost prometheus.Counter }

func newAuditMetrics() auditMetrics {
	return auditMetrics{
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "outspan_audit_lines_total",
			Help: "Lines of the audit log that were written."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "outspan_audit_lost_total",
			Help: "Lines of the audit log that could not be written."}),
	}
}

func (m auditMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.written, m.lost}
}

// auditRenewal records that this server has renewed its own certificate.
func (s *serverPart) auditRenewal(*x509.Certificate) {
	if s.audit != nil {
		self := model.Subject{Kind: model.SubjectServer, Name: s.p.cfg.Name}.String()
		s.audit.Record(audit.Line{Stage: audit.Ended, Subject: self, Operation: "server-renew",
			Objects: []string{"member/" + self}, Outcome: audit.Done})
	}
}

// auditHandshake records a handshake that failed. The names in a certificate that was refused are only claimed.
func (s *serverPart) auditHandshake(f transport.FailedHandshake) {
	if s.audit == nil {
		return
	}
	line := audit.Line{Stage: audit.Ended, Operation: "handshake", Peer: f.Remote.String(), Outcome: audit.Refused,
		Code: string(f.Code)}
	if f.Claimed != (model.Subject{}) {
		line.Objects = []string{"member/" + f.Claimed.String()}
	}
	s.audit.Handshake(line)
}

// auditJoins records the joins that this server is asked for, and the returns with an expired certificate. If the audit
// log is required, a join waits until its line is on disk. Strangers without a good token can't fill the log: their
// requests are limited like refusals.
func (s *serverPart) auditJoins(next transport.AnswerJoin) transport.AnswerJoin {
	return func(ctx context.Context, source net.Addr, r transport.JoinRequest) (transport.JoinReply, error) {
		if s.audit == nil {
			return next(ctx, source, r)
		}
		began, line := time.Now(), joinLine(source, r)
		if s.audit.Required() {
			if err := s.beginJoin(ctx, line, r); err != nil {
				return transport.JoinReply{}, err
			}
		}
		reply, err := next(ctx, source, r)
		line.Stage, line.Outcome, line.Millis = audit.Ended, audit.Done, time.Since(began).Milliseconds()
		if err == nil {
			s.audit.Record(line)
			return reply, nil
		}
		line.Code = string(codeOf(err))
		if line.Outcome = audit.Refused; api.StatusOf(codeOf(err)) >= 500 {
			line.Outcome = audit.Failed
		}
		s.audit.Refuse(line)
		return reply, err
	}
}

// beginJoin records that a newcomer is about to be let in. Codes: audit_unavailable; rate_limited for too many requests
// without a token that this server knows.
func (s *serverPart) beginJoin(ctx context.Context, line audit.Line, r transport.JoinRequest) error {
	line.Stage = audit.Begun
	token, err := pki.ParseJoinToken(r.Token)
	good := err == nil
	if good {
		verifier := token.Verifier()
		_, refusal := fsm.TokenWith(s.machine.Current(), model.TokenID(token.ID()), verifier[:])
		good = refusal == nil
	}
	if !good && !s.audit.Admit(line) {
		return model.Refuse(model.CodeRateLimited, "too many requests to join come from %s", line.Peer).
			WithHint("try again in a minute")
	}
	return s.audit.Begin(ctx, line)
}

// joinLine returns what the audit log says of a request to join. The names are those that the newcomer asks for.
func joinLine(source net.Addr, r transport.JoinRequest) audit.Line {
	line := audit.Line{Operation: "join", Call: audit.NewCall(), Peer: source.String()}
	requests := map[pki.Role][]byte{pki.RoleServer: r.Server, pki.RoleAgent: r.Agent}
	if r.Rejoin != nil {
		line.Operation, requests = "rejoin", map[pki.Role][]byte{pki.RoleAgent: r.Rejoin.Request}
	}
	if token, err := pki.ParseJoinToken(r.Token); err == nil {
		line.Token = token.ID()
	}
	for _, role := range [...]pki.Role{pki.RoleServer, pki.RoleAgent} {
		if request, err := pki.ParseRequest(requests[role], role); err == nil {
			line.Objects = append(line.Objects, string(role)+":"+request.Name)
		}
	}
	return line
}

func codeOf(err error) model.Code {
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return refusal.Code
	}
	return model.CodeInternal
}
