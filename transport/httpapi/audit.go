package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
)

// headerNote carries what the leader knows of a forwarded request to the server that records it.
const headerNote = "Outspan-Audit"

const (
	maxNoted   = 20       // objects in a note
	maxProblem = 64 << 10 // bytes of a problem that are looked at for its code
	maxAsked   = 1 << 20  // bytes of a body that is looked at for names
)

// auditNote collects what the audit log says of one request. Only the goroutine of the request uses it.
type auditNote struct {
	who   caller
	call  string // set once a line says that the request has begun
	told  bool   // a line of the log counts the refusal
	query url.Values
	body  []byte // of a request that is not a stream; see asked

	program   string // that is run in an instance, without its directory
	arguments int    // how many the program has
	port      string // that is forwarded

	Proved   string   `json:"proved,omitempty"` // who signed in, once the leader knows
	Objects  []string `json:"objects,omitempty"`
	More     int      `json:"more,omitempty"`
	Index    uint64   `json:"index,omitempty"`
	Replayed bool     `json:"replayed,omitempty"`
}

type noteKey struct{}

// noteFrom returns the note of a request. It returns a note that nobody reads for contexts of other origin.
func noteFrom(ctx context.Context) *auditNote {
	if n, ok := ctx.Value(noteKey{}).(*auditNote); ok {
		return n
	}
	return new(auditNote)
}

// about notes what the request is about.
func (n *auditNote) about(on ...rights.Object) {
	for _, o := range on {
		switch {
		case o.Name == "" || slices.Contains(n.Objects, o.Name):
		case len(n.Objects) < maxNoted:
			n.Objects = append(n.Objects, model.Clip(o.Name))
		default:
			n.More++
		}
	}
}

// asked returns what the path and the body of a request name, as the caller wrote it. So a refused request says what
// was wanted, although nothing was looked up, and although there may be no such thing.
func (n *auditNote) asked(r *http.Request) (all []rights.Object) {
	add := func(kind string, names ...string) {
		for _, name := range names {
			if name != "" {
				all = append(all, rights.Object{Name: kind + name})
			}
		}
	}
	noun, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	if kind, ok := pathKinds[noun]; ok {
		add(kind, r.PathValue("id"), r.PathValue("name"))
		if job := r.PathValue("job"); job != "" {
			add("group/", job+"/"+r.PathValue("group"))
		}
	}
	var in struct {
		Nodes     []string              // of a drain
		Job       struct{ Name string } // that is submitted
		Role, To  string                // of a binding
		Name      string                // of an access token, with its roles and groups
		Roles     []string
		Groups    []string
		Instances []string // whose blocking is acknowledged
	}
	if len(n.body) <= maxAsked {
		_ = json.Unmarshal(n.body, &in) // a field of the wrong type stays empty
	}
	switch noun {
	case "drains":
		add("node/", in.Nodes...)
	case "jobs":
		add("job/", in.Job.Name)
	case "bindings":
		add("role/", in.Role)
		add("", in.To)
	case "access-tokens":
		if in.Name != "" {
			add("member/token:", in.Name)
		}
		add("role/", in.Roles...)
		add("group:", in.Groups...)
	case "nodes":
		add("instance/", in.Instances...)
	}
	return all
}

// pathKinds has what names in paths begin with, by the first part of the path.
var pathKinds = map[string]string{
	"access-tokens": "token/", "backups": "backup/", "budgets": "budget/", "certificates": "member/cert:",
	"classes": "class/", "deployments": "deployment/", "drains": "drain/", "instances": "instance/", "jobs": "job/",
	"members": "member/", "newcomers": "member/", "nodes": "node/", "roles": "role/", "services": "service/",
	"tokens": "token/", "transfers": "transfer/", "volumes": "volume/",
}

// people returns to whom a command gives rights, or from whom it takes them: subjects, patterns for them and groups.
func people(state *fsm.State, c fsm.Command) (all []rights.Object) {
	role := rights.RoleName("")
	switch cmd := c.(type) {
	case *fsm.BindingAdd:
		return []rights.Object{{Name: cmd.To}}
	case *fsm.BindingRemove:
		return []rights.Object{{Name: cmd.To}}
	case *fsm.RoleSet:
		role = cmd.Role.Name
	case *fsm.RoleRemove:
		role = cmd.Name
	case *fsm.AccessTokenCreate:
		for _, group := range cmd.Groups {
			all = append(all, rights.Object{Name: "group:" + group})
		}
		return all
	default:
		return nil
	}
	for _, b := range state.Bindings.From(string(role) + " ") {
		if b.Role != role {
			break
		}
		all = append(all, rights.Object{Name: b.To})
	}
	return all
}

// entry notes the log entry of a write.
func (n *auditNote) entry(index uint64, replayed bool) { n.Index, n.Replayed = index, replayed }

// header returns the value of headerNote.
func (n *auditNote) header() string {
	text, err := json.Marshal(n)
	if err != nil {
		return "" // can't happen: there are only texts and numbers
	}
	return url.QueryEscape(string(text))
}

// take adds what the leader noted. It ignores the header of a leader that sends none.
func (n *auditNote) take(header string) {
	text, err := url.QueryUnescape(header)
	if err == nil && text != "" {
		_ = json.Unmarshal([]byte(text), n) // only the index and the objects are missing then
	}
}

// audited records a request once it has ended, unless a server forwarded it: the server that authenticated the caller
// records it, with what this server notes in a header.
func (s *Server) audited(rt route, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, n := time.Now(), &auditNote{query: r.URL.Query()}
		out := &auditWriter{ResponseWriter: w, note: n}
		whole := false
		defer func() { s.endAudit(rt, r, n, out.result(r.Context(), whole), began) }()
		next(out, r.WithContext(context.WithValue(r.Context(), noteKey{}, n)))
		whole = true
	})
}

// records reports whether the request is recorded even if it succeeds.
func (n *auditNote) records(rt route) bool {
	return (n.who.role() == pki.RoleCLI || rt.open) && (rt.write || reveals[rt.id])
}

// beginAudit records that a request is about to be carried out: a stream, and everything if the audit log is required.
// Then it blocks until the line is on disk. If a caller has no right to the operation, its calls have as many lines as
// refusals have: further ones are refused here. Codes: audit_unavailable, forbidden, unauthenticated.
func (s *Server) beginAudit(rt route, r *http.Request) error {
	n := noteFrom(r.Context())
	n.query = r.URL.Query() // with what was in the body
	log := s.cfg.Audit
	if log == nil || n.who.via != "" || !n.records(rt) || !rt.stream && !log.Required() {
		return nil
	}
	n.call = audit.NewCall()
	line := s.auditLine(rt, r, n)
	line.Stage = audit.Begun
	if !log.Required() {
		log.Record(line)
		return nil
	}
	if !rt.open {
		if refusal := s.judge.mayCallOn(rt, n.who, pathObject(r)); refusal != nil {
			n.told = !log.Admit(line)
			if n.told {
				return refusal
			}
		}
	}
	return log.Begin(r.Context(), line)
}

// endAudit records a request that has ended.
func (s *Server) endAudit(rt route, r *http.Request, n *auditNote, result auditResult, began time.Time) {
	log := s.cfg.Audit
	if log == nil || n.told || n.who.via != "" || !n.records(rt) && !isRefusal(result.code) {
		return
	}
	line := s.auditLine(rt, r, n)
	line.Stage, line.Outcome, line.Code = audit.Ended, result.outcome, string(result.code)
	if len(n.Objects) == 0 && result.outcome != audit.Done {
		n.about(n.asked(r)...)
	}
	line.Objects, line.More, line.Index, line.Replayed = n.Objects, n.More, n.Index, n.Replayed
	line.Millis = time.Since(began).Milliseconds()
	if result.outcome == audit.Refused && n.call == "" {
		log.Refuse(line)
		return
	}
	log.Record(line)
}

func (s *Server) auditLine(rt route, r *http.Request, n *auditNote) audit.Line {
	dry, _ := strconv.ParseBool(n.query.Get("dry_run")) // a value that is none is refused
	line := audit.Line{Call: n.call, Token: string(n.who.token), Peer: peerText(r.RemoteAddr), Operation: rt.id,
		Verb: string(verbs[rt.id]), Path: r.URL.Path, RequestID: n.query.Get("request_id"), DryRun: dry,
		Program: n.program, Arguments: n.arguments, Port: n.port}
	who := n.who.Subject
	if who == (model.Subject{}) || rt.open { // what the caller says it is was refused
		who, _ = transport.SubjectFrom(r.Context())
	}
	switch {
	case n.Proved != "":
		line.Subject = n.Proved
	case who != (model.Subject{}):
		line.Subject = who.String()
	}
	return line
}

// peerText returns the other end of a connection. A unix socket has no address.
func peerText(address string) string {
	if address == "" || address == "@" {
		return "unix"
	}
	return address
}

// isRefusal reports whether a code means that the caller may not do something, or not now.
func isRefusal(code model.Code) bool {
	switch code {
	case model.CodeForbidden, model.CodeUnauthenticated, model.CodeRateLimited, model.CodeCertificateRefused,
		model.CodeMemberRevoked, model.CodeNodeTaken, model.CodeAuditUnavailable:
		return true
	}
	return false
}

// auditAgent records an agent's call that is refused, and the renewals of certificates.
func (s *Server) auditAgent(ctx context.Context, who model.Subject, call transport.AgentCall, err error,
	began time.Time) {
	log := s.cfg.Audit
	if log == nil {
		return
	}
	line := audit.Line{Stage: audit.Ended, Subject: who.String(), Peer: transport.RemoteFrom(ctx),
		Operation: "agent-" + call.String(), Outcome: audit.Done, Millis: time.Since(began).Milliseconds()}
	if err == nil {
		if call == transport.CallRenew {
			log.Record(line)
		}
		return
	}
	code := api.NewProblem(err).Code
	line.Code, line.Outcome = string(code), outcomeOf(code)
	if isRefusal(code) || call == transport.CallRenew && line.Outcome == audit.Refused {
		log.Refuse(line)
	}
}

// auditResult is how a request ended.
type auditResult struct {
	outcome audit.Outcome
	code    model.Code
}

// outcomeOf returns the outcome of a request that was answered with a code.
func outcomeOf(code model.Code) audit.Outcome {
	if status := api.StatusOf(code); status >= http.StatusInternalServerError && code != model.CodeAuditUnavailable {
		return audit.Failed
	}
	return audit.Refused
}

// auditWriter notes the status of an answer, and the code of a problem. To a server that forwarded the request it sends
// the note.
type auditWriter struct {
	http.ResponseWriter
	note    *auditNote
	status  int
	problem []byte
}

// statusOf returns the status of an answer, or 0 if it is not known.
func statusOf(w http.ResponseWriter) int {
	if a, ok := w.(*auditWriter); ok {
		return a.status
	}
	return 0
}

// WriteHeader implements http.ResponseWriter.
func (w *auditWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		if w.note.who.via != "" {
			w.Header().Set(headerNote, w.note.header())
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *auditWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.status >= http.StatusBadRequest && len(w.problem) < maxProblem {
		w.problem = append(w.problem, p[:min(len(p), maxProblem-len(w.problem))]...)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the real writer.
func (w *auditWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// result returns what came of the request. whole says that the handler returned: otherwise it panicked, or cut the
// answer off. A reader that goes away ends a stream in an ordinary way.
func (w *auditWriter) result(ctx context.Context, whole bool) auditResult {
	switch {
	case !whole && w.status == 0:
		return auditResult{audit.Failed, model.CodeInternal}
	case w.status < http.StatusBadRequest && !whole && ctx.Err() == nil:
		return auditResult{audit.Failed, model.CodeCanceled}
	case w.status < http.StatusBadRequest:
		return auditResult{outcome: audit.Done}
	}
	var problem api.Problem
	if err := json.Unmarshal(w.problem, &problem); err != nil || problem.Code == "" {
		problem.Code = model.CodeInternal // can't happen: each error is answered with a problem
	}
	return auditResult{outcomeOf(problem.Code), problem.Code}
}
