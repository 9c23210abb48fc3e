package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// SetAdmission sets a function that may refuse a peer whose certificate is good, for example because it was revoked. It
// replaces the previous function. At first there is none, and every such peer is admitted.
//
// The function is called within every handshake, for accepted and dialled connections, and again after it. It gets the
// identity in the peer's certificate, and the certificate. At the first call the peer may have copied the certificate:
// whether it has the key is known only after the handshake; see SetProved. Its error ends the
// connection, and should be a *model.Error. Only the log, or the caller of the Dialer, gets that error: the peer gets a
// TLS alert. The function is called concurrently and must not block. A change of what it answers applies to new
// connections; Listener.CloseWhere closes those that are open.
func (c *Credentials) SetAdmission(admit func(id pki.Identity, leaf *x509.Certificate) error) {
	c.admission.Store(&admit)
}

// SetProved sets a function that is called after each handshake with a peer that is admitted and that has proved to
// have the key of its certificate. It replaces the previous function. It is called concurrently and must not block.
func (c *Credentials) SetProved(proved func(id pki.Identity, leaf *x509.Certificate)) {
	c.proved.Store(&proved)
}

// SetClock sets the clock by which certificates of peers are judged in handshakes. At first it is time.Now. The clock
// is called concurrently and must not block.
func (c *Credentials) SetClock(now func() time.Time) { c.clock.Store(&now) }

// Now returns the time by the clock of SetClock.
func (c *Credentials) Now() time.Time {
	if now := c.clock.Load(); now != nil {
		return (*now)()
	}
	return time.Now()
}

// CloseWhere closes the open connections for which wrong returns true, accepted and dialled ones, and returns their
// number. The parameters of wrong are the peer's identity and its certificate. wrong must not block. To keep such peers
// out, let the admission of the Credentials refuse them before the call (see Credentials.SetAdmission).
func (l *Listener) CloseWhere(wrong func(id pki.Identity, leaf *x509.Certificate) bool) int {
	return l.closeIf(func(g *gate) bool { return wrong(g.peer, g.proof[0]) }) +
		l.cfg.Credentials.dialled.closeIf(func(o *outward) bool { return wrong(o.peer, o.proof[0]) })
}

func (l *Listener) closeIf(wrong func(*gate) bool) int {
	return l.api.closeIf(wrong) + l.raft.closeIf(wrong)
}

// admit asks the admission about the peer of a verified handshake.
func (c *Credentials) admit(state tls.ConnectionState) error {
	id, err := pki.Peer(state)
	if err != nil {
		return err
	}
	return c.ask(id, state.PeerCertificates[0])
}

func (c *Credentials) ask(id pki.Identity, leaf *x509.Certificate) error {
	if f := c.admission.Load(); f != nil && *f != nil {
		return (*f)(id, leaf)
	}
	return nil
}

// recheck is called after the handshake. It returns an error if a reload has removed the peer's CA meanwhile, or the
// admission now refuses the peer. Otherwise the peer has proved its identity. Codes: certificate_refused, and those of
// the admission.
func (c *Credentials) recheck(id pki.Identity, shown []*x509.Certificate) error {
	if !c.Trusts(shown) {
		return model.Refuse(model.CodeCertificateRefused, "the CA of the certificate of %s is no longer trusted", id).
			WithHint("use a certificate of a CA in the CA file of this process")
	}
	if err := c.ask(id, shown[0]); err != nil {
		return err
	}
	if f := c.proved.Load(); f != nil {
		(*f)(id, shown[0])
	}
	return nil
}

// FailedHandshake describes a handshake that failed.
type FailedHandshake struct {
	Remote net.Addr
	// Code is that of the refusal of the peer's certificate, certificate_invalid for one that a wrong CA has signed,
	// not_tls, timeout, or canceled if the peer broke off. invalid stands for everything else, such as a peer without a
	// certificate.
	Code model.Code
	// Claimed is whom the peer's certificate names. The peer need not have its key, and anybody may have signed it.
	// Zero if it names nobody.
	Claimed model.Subject
}

// tellFailed passes on a handshake that failed, unless this server stops.
func (l *Listener) tellFailed(ctx context.Context, g *gate, state tls.ConnectionState, err error) {
	if l.cfg.Failed == nil || ctx.Err() != nil {
		return
	}
	f := FailedHandshake{Remote: g.RemoteAddr(), Code: failureCode(err)}
	shown := state.PeerCertificates
	if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		shown = wrong.UnverifiedCertificates
	}
	if len(shown) > 0 {
		if id, bad := pki.Holder(shown[0]); bad == nil {
			f.Claimed = subjectOf(id)
		}
	}
	l.cfg.Failed(f)
}

func failureCode(err error) model.Code {
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return refusal.Code
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return model.CodeCertificateInvalid
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return model.CodeNotTLS
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return model.CodeTimeout
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return model.CodeCanceled
	}
	return model.CodeInvalid
}
