package door

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"regexp"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/internal/ui"
	"github.com/outspan/outspan/model"
)

// callbackPath is where the provider sends the browser.
const callbackPath = "/ui/callback"

// maxBody is the largest body of a sign-in in bytes.
const maxBody = 16 << 10

// told is the answer to the question who is signed in.
type told struct {
	ID       string     `json:"id,omitempty"`       // which sign-in this is; it opens nothing
	Subject  string     `json:"subject,omitempty"`  // absent: nobody
	Ends     *time.Time `json:"ends,omitempty"`     // when the session ends at the latest
	Provider string     `json:"provider,omitempty"` // the name of the provider that signs people in; absent: there is none
}

func (d *Door) tell(w http.ResponseWriter, r *http.Request) {
	var v told
	if s := d.session(r); s != nil {
		v.ID, v.Subject, v.Ends = s.id(), s.subject, &s.ends
	}
	if d.cfg.Provider != nil {
		v.Provider = d.cfg.Provider.Name()
	}
	reply(w, v)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the browser has gone
}

// signInStep is a step of a sign-in, with the body of its request. It writes its answer unless it returns an error.
type signInStep func(ctx context.Context, w http.ResponseWriter, r *http.Request, body []byte) error

// untried is the refusal of a request that has tried nothing, so it does not count as an attempt. Any site can make a
// browser send one, by a link to callbackPath.
type untried struct{ error }

// Unwrap returns the refusal.
func (u untried) Unwrap() error { return u.error }

// limited limits how often, how many and for how long people sign in. An attempt that succeeds does not count. A
// request takes its place among those that sign in once its body has arrived.
func (d *Door) limited(next signInStep) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		source := d.cfg.Source(r.RemoteAddr)
		if !d.attempts.take(source) {
			d.refuse(w, r, model.Refuse(model.CodeRateLimited, "too many sign-ins from %s have failed", source).
				WithHint("wait a minute"))
			return
		}
		body, err := readBody(w, r)
		if err != nil {
			d.refuse(w, r, err)
			return
		}
		select {
		case d.signing <- struct{}{}:
			defer func() { <-d.signing }()
		default:
			d.attempts.giveBack(source)
			d.refuse(w, r, model.Refuse(model.CodeBusy, "too many people sign in at this moment").
				WithHint("try again in a few seconds"))
			return
		}
		d.cfg.Proving(r.Context(), signInTime)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(signInTime + writeTime))
		ctx, cancel := context.WithTimeout(r.Context(), signInTime)
		defer cancel()
		err = next(ctx, w, r, body)
		if _, free := errors.AsType[untried](err); free || err == nil {
			d.attempts.giveBack(source)
		}
		if err != nil {
			d.refuse(w, r, err)
		}
	}
}

// refuse answers a sign-in that is refused, and records it.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := api.NewProblem(err)
	line := audit.Line{Stage: audit.Ended, Operation: "page-sign-in", Peer: r.RemoteAddr, Outcome: audit.Refused,
		Code: string(p.Code)}
	if p.Status >= http.StatusInternalServerError && p.Code != model.CodeAuditUnavailable {
		line.Outcome = audit.Failed
	}
	if d.cfg.Audit != nil {
		d.cfg.Audit.Refuse(line)
	}
	ui.Refuse(w, 0, err)
}

// readBody reads the body of a sign-in, for readTime at most. Codes: invalid, too_large.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limits := http.NewResponseController(w)
	_ = limits.SetReadDeadline(time.Now().Add(readTime)) // if this fails, only the time limit of the connection applies
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		_ = limits.SetReadDeadline(time.Time{}) // otherwise HTTP/1.1 would end the request by it
		return text, nil
	}
	w.Header().Set("Connection", "close") // the limit stays: net/http would wait for the rest of the body
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, model.Refuse(model.CodeTooLarge, "the request is larger than %d bytes", maxBody)
	}
	return nil, model.Refuse(model.CodeInvalid, "the body has not arrived")
}

// decode decodes the body of a sign-in. Code: invalid.
func decode(r *http.Request, body []byte, into any) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" || json.Unmarshal(body, into) != nil {
		return model.Refuse(model.CodeInvalid, "the body must be JSON")
	}
	return nil
}

// byToken signs somebody in with an access token. Codes: invalid, unauthenticated, and those of begin.
func (d *Door) byToken(ctx context.Context, w http.ResponseWriter, r *http.Request, text []byte) error {
	var body struct {
		Token string `json:"token"`
	}
	if err := decode(r, text, &body); err != nil {
		return err
	}
	if !tokenText.MatchString(body.Token) {
		return model.Refuse(model.CodeInvalid, "this is no access token: they begin with osa1").
			WithHint("make one with: outspan auth token create NAME --role ROLE")
	}
	var who api.Identity
	// One server's knowledge is enough: without a leader, people can still look.
	err := d.call(ctx, r, body.Token, http.MethodGet, "/v1/auth/whoami", "consistency=stale", nil, &who)
	if err != nil {
		return err
	}
	return d.begin(ctx, w, r, who, body.Token, false)
}

// tokenText is what an access token looks like. The API judges it.
var tokenText = regexp.MustCompile(`^osa1\.[A-Za-z0-9._-]{8,200}$`)

// begin begins a session, and ends the one that the browser had. Code: audit_unavailable.
func (d *Door) begin(ctx context.Context, w http.ResponseWriter, r *http.Request, who api.Identity, token string,
	login bool) error {
	one := session{token: token, subject: who.Subject, login: login}
	if who.Token != nil {
		one.tokenID, one.ends = string(who.Token.ID), who.Token.Ends
	}
	if err := d.record(ctx, r, "page-sign-in", &one); err != nil {
		return err
	}
	if before := d.session(r); before != nil && d.sessions.stop(before) {
		d.recordEnd(before)
	}
	setCookie(w, r, forSession, d.sessions.begin(one))
	reply(w, told{Subject: one.subject})
	return nil
}

// record records a sign-in or a sign-out. If the audit log is required, it blocks until the line is on disk. Code:
// audit_unavailable.
func (d *Door) record(ctx context.Context, r *http.Request, operation string, s *session) error {
	log := d.cfg.Audit
	if log == nil {
		return nil
	}
	line := audit.Line{Operation: operation, Subject: s.subject, Token: s.tokenID, Peer: r.RemoteAddr}
	if log.Required() {
		line.Stage, line.Call = audit.Begun, audit.NewCall()
		if err := log.Begin(ctx, line); err != nil {
			return err
		}
	}
	line.Stage, line.Outcome = audit.Ended, audit.Done
	log.Record(line)
	return nil
}

// recordEnd records that a session has ended without a sign-out.
func (d *Door) recordEnd(s *session) {
	if d.cfg.Audit != nil {
		d.cfg.Audit.Record(audit.Line{Stage: audit.Ended, Operation: "page-session-end", Subject: s.subject, Token: s.tokenID,
			Outcome: audit.Done})
	}
}

// toProvider says where the browser signs in with the provider. Codes: not_supported, provider_unreachable.
func (d *Door) toProvider(ctx context.Context, w http.ResponseWriter, r *http.Request, _ []byte) error {
	if d.cfg.Provider == nil {
		return model.Refuse(model.CodeNotSupported, "this cluster has no provider to sign in with").
			WithHint("sign in with an access token")
	}
	address, trip, err := d.cfg.Provider.Begin(ctx, "https://"+r.Host+callbackPath)
	if err != nil {
		return err
	}
	sealed, err := d.sealer.seal(trip)
	if err != nil {
		return model.Refuse(model.CodeInternal, "%v", err)
	}
	setCookie(w, r, forTrip, sealed)
	reply(w, map[string]string{"address": address})
	return nil
}

// errorText is what an error of a provider looks like (RFC 6749).
var errorText = regexp.MustCompile(`^[a-z_]{1,40}$`)

// fromProvider signs somebody in who comes back from the provider. Codes: forbidden, and those of the provider, of the
// login, and of begin.
func (d *Door) fromProvider(ctx context.Context, w http.ResponseWriter, r *http.Request, text []byte) error {
	var body struct {
		Code  string `json:"code"`
		State string `json:"state"`
		Error string `json:"error"`
	}
	if err := decode(r, text, &body); err != nil {
		return err
	}
	trip, ok := d.sealer.open(cookie(r, forTrip))
	setCookie(w, r, forTrip, "")
	if !ok || subtle.ConstantTimeCompare([]byte(trip.State), []byte(body.State)) != 1 || d.cfg.Provider == nil {
		return untried{model.Refuse(model.CodeForbidden, "this sign-in was not begun in this browser, or more than %s ago",
			tripTime).WithHint("sign in again")}
	}
	switch {
	case body.Error == "access_denied":
		return model.Refuse(model.CodeForbidden, "the sign-in was denied at %s", d.cfg.Provider.Name())
	case body.Error != "":
		if !errorText.MatchString(body.Error) {
			body.Error = "an error"
		}
		return model.Refuse(model.CodeForbidden, "%s has not signed you in: %s", d.cfg.Provider.Name(), body.Error).
			WithHint("sign in again")
	}
	idToken, err := d.cfg.Provider.IDToken(ctx, trip, body.Code)
	if err != nil {
		return err
	}
	var login api.LoginReply
	if err := d.call(ctx, r, "", http.MethodPost, "/v1/auth/login", "", api.LoginBody{IDToken: idToken},
		&login); err != nil {
		return err
	}
	// The connection counts as that of this person from now on, as with an access token.
	var who api.Identity
	if err := d.call(ctx, r, login.Text, http.MethodGet, "/v1/auth/whoami", "consistency=stale", nil, &who); err != nil {
		return err
	}
	return d.begin(ctx, w, r, who, login.Text, true)
}

// signOut ends the session. If the sign-in has made the access token, that is revoked too, unless the cluster can't do
// it now: then it ends by itself, and nobody has its text any more.
func (d *Door) signOut(w http.ResponseWriter, r *http.Request) {
	setCookie(w, r, forSession, "")
	s := d.session(r)
	if s == nil {
		reply(w, told{})
		return
	}
	d.sessions.stop(s)
	defer d.cfg.Unproved(r.Context()) // last: each call below marks the connection as proved
	ctx, cancel := context.WithTimeout(r.Context(), readTime)
	defer cancel()
	_ = d.record(ctx, r, "page-sign-out", s) // to sign out must always work
	if s.login {
		var gone api.LogoutReply
		_ = d.call(ctx, r, s.token, http.MethodPost, "/v1/auth/logout", "", nil, &gone)
	}
	reply(w, told{})
}
