package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// access is the set of roles that may call an operation.
type access uint8

const (
	forCLI access = 1 << iota
	forAgent
	forServer
	forAll = forCLI | forAgent | forServer
)

func (a access) has(role pki.Role) bool {
	switch role {
	case pki.RoleCLI:
		return a&forCLI != 0
	case pki.RoleAgent:
		return a&forAgent != 0
	case pki.RoleServer:
		return a&forServer != 0
	}
	return false
}

// place says which server answers an operation.
type place uint8

const (
	runHere   place = iota // the server that was asked
	runRead                // the leader, unless the caller accepts stale data
	runLeader              // the leader
)

// Bounds of a request that is not a stream.
const (
	maxWait     = 60 * time.Second
	writeLimit  = 30 * time.Second
	requestTime = maxWait + writeLimit
	bodyTime    = 30 * time.Second // for reading the body

	maxOpenBody = 64 << 10 // bytes of the body of an operation that takes no identity

	firstRoom    = 4 << 10         // bytes allocated at first, because the announced length may be false
	swallowTime  = 2 * time.Second // for reading what remains of a refused body
	swallowLimit = 8 << 20         // bytes read of what remains of a refused body
)

// route describes one operation, without its functions.
type route struct {
	id           string // of the operation in the OpenAPI document
	method, path string
	tag, summary string
	allow        access
	run          place
	stream       bool // the body or the answer can have any length, so it is not buffered, and guard sets no time limit
	write        bool
	json         bool // takes a JSON body although it is not a write
	alone        bool // answered also by a server that is not inContact
	typed        bool // huma decodes the input, and encodes the answer as a whole
	open         bool // takes no identity: neither a certificate nor an access token; see anonymous
}

func (r route) match() string { return r.method + " " + r.path }

// limit returns how long a request that is not a stream may take, including its body.
func (r route) limit() time.Duration {
	if r.write {
		return bodyTime + writeLimit
	}
	return requestTime
}

// operation is a route with its functions. A huma operation has only register. Any other operation has a handler, and
// document for its part of the OpenAPI document.
type operation struct {
	route
	register func(huma.API)
	handler  http.Handler
	document func(huma.Registry) *huma.Operation
}

// guard returns the handler of an operation. The handler checks the caller, the role, that this server knows of
// revocations (inContact), the rate, the body and the audit log. Then it answers here or on the leader. The server that
// answers checks the rights, because others may not know of the newest ones yet.
func (s *Server) guard(rt route, next http.Handler) http.Handler {
	return s.audited(rt, func(w http.ResponseWriter, r *http.Request) {
		who, err := s.identifyFor(rt, r)
		noteFrom(r.Context()).who = who
		if err == nil && !rt.open {
			err = who.may(rt)
		}
		if err == nil && who.needsContact(rt) {
			err = s.inContact()
		}
		if err == nil && !rt.open && who.Kind != model.SubjectServer { // forwarded too: the leader counts over all servers
			if err = s.takeRequest(who.Subject); err != nil {
				s.holdRefusal(r.Context(), who.Subject)
			}
		}
		if err != nil {
			s.refuse(w, rt, who, err)
			return
		}
		ctx := withCaller(r.Context(), who)
		var cancel func()
		if rt.stream {
			ctx, cancel = s.whileInContact(ctx, rt, who)
			defer cancel()
		} else {
			ctx, cancel = context.WithTimeout(ctx, rt.limit())
			defer cancel()
			raw, free, err := s.takeBody(rt, who, w, r)
			if err != nil {
				s.refuse(w, rt, who, err)
				return
			}
			defer free()
			ctx = withBody(ctx, raw)
			noteFrom(ctx).body = raw
		}
		if err := s.beginAtOnce(rt, r.WithContext(ctx)); err != nil {
			s.refuse(w, rt, who, err)
			return
		}
		s.answer(rt, who, next, w, r.WithContext(ctx))
		if n := noteFrom(ctx); rt.open && rt.write && n.Index != 0 && !n.Replayed && statusOf(w) == http.StatusOK {
			s.logins.giveBack(who.Subject)
		}
	})
}

// identifyFor returns who sent a request for an operation. Codes: those of identify and anonymous.
func (s *Server) identifyFor(rt route, r *http.Request) (caller, error) {
	if rt.open {
		return s.anonymous(rt, r)
	}
	return s.identify(r)
}

// refuse answers a request that guard refuses, and logs the refusal.
func (s *Server) refuse(w http.ResponseWriter, rt route, who caller, err error) {
	s.cfg.Refused(err)
	s.log.Debug("request refused", "operation", rt.id, "caller", who.Subject, "error", err)
	writeError(w, err)
}

// takeBody reads the body of a request that is not a stream. Unless it returns an error, the caller must call free once
// the request is answered. It refuses a GET that has a body, because the body would stay in memory while the read
// waits. Codes: invalid, busy, too_large, forbidden, unsupported_media_type.
func (s *Server) takeBody(rt route, who caller, w http.ResponseWriter, r *http.Request) (raw []byte,
	free func(), err error) {
	free = func() {}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
	case rt.method == http.MethodGet:
		if r.ContentLength > 0 || !emptyBody(w, r) {
			return nil, nil, model.Refuse(model.CodeInvalid, "a read takes no body").
				WithHint("put what it asks for into the query")
		}
	default:
		free, raw, err = countBody(s, rt, who, w, r)
	}
	if err == nil && (rt.write || rt.json) {
		err = ownPage(r)
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	if rt.write && rt.open {
		transport.Proving(r.Context(), writeLimit)
	}
	if rt.write {
		raw = paramsOfBody(r, raw)
	}
	return raw, free, nil
}

// countBody reads a body and counts its bytes until free is called. The announced size counts before the body comes,
// so that a caller within its share is never refused in the middle of a body. Of strangers only what has come counts,
// because an announcement of theirs must take no memory from others. Codes: busy, too_large, invalid.
func countBody(s *Server, rt route, who caller, w http.ResponseWriter, r *http.Request) (free func(), raw []byte,
	err error) {
	account, counted := s.cfg.Bodies, int64(0)
	count := func(n int64) error {
		err := account.Take(who.Subject, n)
		if err == nil {
			counted += n
		}
		return err
	}
	free = func() { account.Give(who.Subject, counted) }
	if rt.open {
		account = s.openBodies
		raw, err = bufferBody(w, r, maxOpenBody, &countedBody{r.Body, count})
		return free, raw, err
	}
	size := r.ContentLength
	if size < 0 || size > transport.DefaultMaxBody {
		size = transport.DefaultMaxBody
	}
	if err = count(size); err == nil {
		raw, err = bufferBody(w, r, transport.DefaultMaxBody, r.Body)
	}
	return free, raw, err
}

// countedBody counts the bytes of a body as they come.
type countedBody struct {
	io.ReadCloser
	count func(int64) error
}

// Read implements io.Reader.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if refusal := c.count(int64(n)); refusal != nil {
		return 0, refusal
	}
	return n, err
}

// answer runs the operation here if this server may answer it, and otherwise forwards the request to the leader. It
// does not forward a request if no leader is known, or if another server has forwarded it already. Codes: no_leader,
// and not_caught_up for a stale read.
func (s *Server) answer(rt route, who caller, next http.Handler, w http.ResponseWriter, r *http.Request) {
	next = s.inShares(rt, who, s.judge.before(s, rt, who, next))
	if rt.run == runHere {
		next.ServeHTTP(w, r)
		return
	}
	if rt.run == runRead && r.URL.Query().Get("consistency") == string(readStale) {
		s.serveStale(w, r, next)
		return
	}
	leader, self, ok := s.cfg.Consensus.Leader()
	switch {
	case ok && self:
		if rt.run == runRead && !rt.stream {
			w.Header().Set(api.HeaderStale, "0") // the leader's lease is in force
		}
		next.ServeHTTP(w, r)
	case !ok:
		writeError(w, noLeader())
	case who.via != "":
		writeError(w, model.Refuse(model.CodeNoLeader, "leadership is changing hands").WithHint("try again in a moment"))
	default:
		s.forward(leader, who, rt, w, r)
	}
}

func noLeader() *model.Error {
	return model.Refuse(model.CodeNoLeader, "the servers have no leader at present").
		WithHint("%s", withoutLeader)
}

// withoutLeader is the hint while there is no leader.
const withoutLeader = "try again in a moment. What one server knows: ls and status take --consistency stale, " +
	"reads of the API consistency=stale; who is away: outspan server members"

func (s *Server) serveStale(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !s.cfg.Freshness.CaughtUp() {
		writeError(w, model.Refuse(model.CodeNotCaughtUp, "this server is still catching up").
			WithHint("ask another server, or try again in a moment"))
		return
	}
	w.Header().Set(api.HeaderStale, decimal(uint64(max(0, s.cfg.Freshness.StaleFor().Milliseconds()))))
	next.ServeHTTP(w, r)
}

// bufferBody reads the whole body, so that the request can be refused before anything is done, and can be forwarded
// unchanged. body is r.Body, or reads it. Codes: too_large, invalid, and those of the errors of body.
func bufferBody(w http.ResponseWriter, r *http.Request, most int64, body io.ReadCloser) ([]byte, error) {
	slow := http.NewResponseController(w)
	if r.ContentLength > most {
		swallow(slow, r.Body)
		return nil, bodyTooLarge(most)
	}
	raw, err := readWithin(slow, body, max(r.ContentLength, 0), most)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		swallow(slow, r.Body)
		return nil, bodyTooLarge(most)
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return nil, refusal
	}
	if err != nil {
		return nil, model.Refuse(model.CodeInvalid, "the body did not arrive whole")
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return raw, nil
}

// emptyBody reports whether a body of unannounced length is empty. It waits at most bodyTime for the end of the body.
func emptyBody(w http.ResponseWriter, r *http.Request) bool {
	raw, err := readWithin(http.NewResponseController(w), struct {
		io.Reader
		io.Closer
	}{io.LimitReader(r.Body, 1), r.Body}, 0, 1)
	r.Body, r.ContentLength = http.NoBody, 0
	return err == nil && len(raw) == 0
}

// readWithin reads a whole body, for at most bodyTime. The announced size may be 0 or wrong. Only when bodyTime has
// passed does readWithin set a deadline on the connection. To set a deadline in advance and remove it would wake the
// goroutine of the connection twice, although nearly every body has already arrived.
func readWithin(slow *http.ResponseController, body io.ReadCloser, size, most int64) ([]byte, error) {
	late := make(chan struct{})
	timer := time.AfterFunc(bodyTime, func() {
		defer close(late)
		_ = slow.SetReadDeadline(time.Now()) // if this fails, only the time limit of the request applies
	})
	var buf bytes.Buffer
	// With MinRead more bytes, ReadFrom sees the end of the body without enlarging the buffer.
	buf.Grow(int(min(size, firstRoom)) + bytes.MinRead)
	_, err := buf.ReadFrom(http.MaxBytesReader(nil, body, most))
	if !timer.Stop() {
		<-late // the timer's function must not use the controller after the handler has returned
		if err == nil {
			// The body arrived at the last moment. If the deadline can't be removed, the connection ends a little early.
			_ = slow.SetReadDeadline(time.Time{})
		}
	}
	return buf.Bytes(), err
}

// swallow reads what remains of a refused body, so that the client gets the answer instead of a broken connection. It
// reads at most swallowLimit bytes, for at most swallowTime.
func swallow(slow *http.ResponseController, body io.Reader) {
	if slow.SetReadDeadline(time.Now().Add(swallowTime)) == nil {
		_, _ = io.CopyN(io.Discard, body, swallowLimit)
	}
	_ = slow.SetReadDeadline(time.Time{})
}

// ownPage refuses a request with a JSON body if a page of another site may have made the user's browser send it with
// the user's certificate. Codes: forbidden, unsupported_media_type.
func ownPage(r *http.Request) error {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return model.Refuse(model.CodeForbidden, "the request comes from another site")
	}
	given := r.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(given); given != "" && (err != nil || kind != contentTypeJSON) {
		return model.Refuse(model.CodeMediaType, "the body must be %s", contentTypeJSON).
			WithHint("send the header Content-Type: %s", contentTypeJSON)
	}
	return nil
}

// paramsOfBody moves the parameters request_id and if_index of a write from the JSON body into the query, and returns
// the new body. If the query has the parameter already, the field stays in the body, and the body is refused later. A
// body that is not an object stays unchanged.
func paramsOfBody(r *http.Request, raw []byte) []byte {
	var fields map[string]json.RawMessage
	if !bytes.Contains(raw, []byte(`"request_id"`)) && !bytes.Contains(raw, []byte(`"if_index"`)) ||
		json.Unmarshal(raw, &fields) != nil {
		return raw
	}
	query, moved := r.URL.Query(), false
	for _, name := range [...]string{"request_id", "if_index"} {
		value, ok := fields[name]
		if !ok || query.Has(name) {
			continue
		}
		text := string(value)
		if value[0] == '"' && json.Unmarshal(value, &text) != nil {
			continue
		}
		query.Set(name, text)
		delete(fields, name)
		moved = true
	}
	rest, err := json.Marshal(fields)
	if !moved || err != nil {
		return raw
	}
	at := *r.URL
	at.RawQuery = query.Encode()
	r.URL, r.Body, r.ContentLength = &at, io.NopCloser(bytes.NewReader(rest)), int64(len(rest))
	return rest
}

type bodyKey struct{}

func withBody(ctx context.Context, raw []byte) context.Context {
	return context.WithValue(ctx, bodyKey{}, raw)
}

// bodyFrom returns the whole body of a request that is not a stream, and nil for a stream.
func bodyFrom(ctx context.Context) []byte {
	raw, _ := ctx.Value(bodyKey{}).([]byte)
	return raw
}

func bodyTooLarge(most int64) error {
	refusal := model.Refuse(model.CodeTooLarge, "the body is larger than %d bytes", most)
	if most < transport.DefaultMaxBody {
		return refusal.WithHint("an id token has at most 32 KiB: let the provider send fewer claims")
	}
	return refusal.WithHint("a job may have at most 1 MiB; move large data out of it")
}
