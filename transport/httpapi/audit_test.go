package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// auditSink keeps the audit log of a server in memory.
type auditSink struct {
	t testing.TB

	mu     sync.Mutex
	failed error
	text   bytes.Buffer
}

func (s *auditSink) Write(lines []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.text.Write(lines)
	}
	return s.failed
}

func (s *auditSink) Sync() error   { return nil }
func (s *auditSink) Reopen() error { return nil }
func (s *auditSink) Close() error  { return nil }

func (s *auditSink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func (s *auditSink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// lines returns the lines so far.
func (s *auditSink) lines() (all []audit.Line) {
	for text := range strings.Lines(s.String()) {
		var line audit.Line
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			s.t.Fatalf("%v in %s", err, text)
		}
		all = append(all, line)
	}
	return all
}

// next waits until an outcome was recorded after the first seen lines, and returns the lines after those.
func (s *auditSink) next(seen int) (all []audit.Line) {
	s.t.Helper()
	eventually(s.t, "a line with an outcome", func() bool {
		all = s.lines()[seen:]
		return slices.ContainsFunc(all, func(l audit.Line) bool { return l.Stage == audit.Ended })
	})
	return all
}

// startAudited starts a server with an audit log.
func (r *rig) startAudited(name string, required bool) (*auditSink, *audit.Log) {
	sink := &auditSink{t: r.t}
	log := audit.New(audit.Config{Server: name, Required: required, Sinks: []audit.Sink{sink}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-ended })
	r.startWith(name, func(c *httpapi.Config) {
		c.Audit, c.Limits = log, httpapi.Limits{RequestsPerSecond: 100_000}
	})
	return sink, log
}

// asks are the operations with POST that change nothing.
var asks = []string{"validate-job", "parse-job", "plan-job"}

// revealing are the reads that show secrets, or what programs wrote.
var revealing = []string{
	"save-snapshot", "instance-logs", "job-logs", "exec-instance", "forward-instance", "get-job", "get-job-version",
	"list-job-versions", "get-job-file",
}

// Each write and each read that reveals leaves one line with an outcome, on the server that was asked.
func TestEveryWriteIsInTheAuditLog(t *testing.T) {
	for _, required := range []bool{false, true} {
		r := newRig(t)
		r.world()
		atLeader, _ := r.startAudited("s2", required)
		asked, _ := r.startAudited("s3", required)
		r.setLeader("s2")
		c := r.client(pki.RoleCLI, "alice", "s3")
		var document struct {
			Paths map[string]map[string]struct {
				ID   string  `json:"operationId"`
				Verb *string `json:"x-outspan-verb"`
			}
		}
		raw, _, err := c.Do(t.Context(), http.MethodGet, "/openapi.json", nil, nil)
		if err != nil || json.Unmarshal(raw, &document) != nil {
			t.Fatal(err)
		}
		recorded := 0
		for path, methods := range document.Paths {
			for method, op := range methods {
				method = strings.ToUpper(method)
				if op.Verb == nil || op.ID == "events" || op.ID == "page-stream" { // streams that do not end
					continue
				}
				want := slices.Contains(revealing, op.ID) || method != http.MethodGet && !slices.Contains(asks, op.ID)
				seen := len(asked.lines())
				c.Do(t.Context(), method, pathParam.ReplaceAllString(path, "none"), nil, nil) // most are refused
				if !want {
					continue
				}
				recorded++
				all := asked.next(seen)
				last := all[len(all)-1]
				begun := len(all) == 2 && all[0].Stage == audit.Begun && all[0].Call == last.Call && last.Call != ""
				// A call without a first message is refused before it begins; see TestExecThroughAFollower.
				atOnce := op.ID == "exec-instance" || op.ID == "forward-instance"
				if !begun && (required && !atOnce || len(all) != 1) || last.Operation != op.ID || last.Outcome == "" ||
					last.Subject != "cert:alice" || last.Verb != *op.Verb || !strings.HasPrefix(last.Peer, "127.0.0.1:") ||
					last.Server != "s3" {
					t.Errorf("%s: %+v", op.ID, all)
				}
			}
		}
		if recorded < 55 {
			t.Errorf("only %d operations are recorded", recorded)
		}
		if text := atLeader.String(); text != "" {
			t.Errorf("the leader records forwarded calls: %s", text)
		}
		outcomes := map[string]int{}
		for _, line := range asked.lines() {
			if line.Stage == audit.Ended {
				outcomes[line.Operation]++
			}
		}
		for id, n := range outcomes {
			if n != 1 {
				t.Errorf("%s has %d lines with an outcome", id, n)
			}
		}
	}
}

// A line says which entry a write made and what it was about, also if another server leads, and contains no secret.
func TestAuditLogNamesEntriesAndNoSecrets(t *testing.T) {
	r := newRig(t)
	r.world()
	r.manage()
	sink, _ := r.startAudited("s2", false)
	r.bind("admin cert:alice", "viewer cert:bob")
	alice, bob := r.client(pki.RoleCLI, "alice", "s2"), r.client(pki.RoleCLI, "bob", "s2")
	do := func(c *transport.Client, method, path, query string, body any) ([]byte, audit.Line) {
		t.Helper()
		seen := len(sink.lines())
		raw, _, _ := c.Do(t.Context(), method, path, values(query), body)
		all := sink.next(seen)
		return raw, all[len(all)-1]
	}
	job := map[string]any{"job": spec("bank", 1)}
	_, submit := do(alice, http.MethodPost, "/v1/jobs", "request_id=r1", job)
	if last := r.lastEntry(); submit.Outcome != audit.Done || submit.Index != r.newest() || submit.RequestID != "r1" ||
		!slices.Contains(submit.Objects, "job/bank") || submit.Verb != "job.submit" || last.Actor != "cert:alice" {
		t.Errorf("submit: %+v, entry %d of %s", submit, r.newest(), last.Actor)
	}
	_, again := do(alice, http.MethodPost, "/v1/jobs", "request_id=r1", job)
	if !again.Replayed || again.Index != submit.Index {
		t.Errorf("again: %+v", again)
	}
	if _, dry := do(alice, http.MethodPost, "/v1/nodes/n1/cordon", "dry_run=true", nil); !dry.DryRun || dry.Index != 0 ||
		dry.Outcome != audit.Done || !slices.Equal(dry.Objects, []string{"node/n1"}) {
		t.Errorf("dry run: %+v", dry)
	}
	if _, line := do(bob, http.MethodPost, "/v1/nodes/n1/cordon", "", nil); line.Outcome != audit.Refused ||
		line.Code != "forbidden" || line.Subject != "cert:bob" || line.Path != "/v1/nodes/n1/cordon" {
		t.Errorf("refused write: %+v", line)
	}
	if _, line := do(bob, http.MethodGet, "/v1/tokens", "", nil); line.Outcome != audit.Refused ||
		line.Operation != "list-tokens" {
		t.Errorf("refused read: %+v", line)
	}
	if _, line := do(alice, http.MethodGet, "/v1/jobs/web", "", nil); line.Outcome != audit.Done ||
		!slices.Equal(line.Objects, []string{"job/web"}) {
		t.Errorf("a job with its environment: %+v", line)
	}
	raw, line := do(alice, http.MethodPost, "/v1/tokens", "", map[string]any{"role": "agent"})
	token, _ := decode(t, raw)["text"].(string)
	if line.Outcome != audit.Done || len(token) < 40 {
		t.Fatalf("token: %+v %s", line, raw)
	}
	do(alice, http.MethodPost, "/v1/tokens/"+token+"/revoke", "", nil) // pasted in place of the id
	r.fail(nil, errors.New("lost"))
	if _, line := do(alice, http.MethodPost, "/v1/nodes/n1/cordon", "", nil); line.Outcome != audit.Failed ||
		line.Code != "unknown" {
		t.Errorf("unknown outcome: %+v", line)
	}
	_, secret, _ := strings.Cut(token, ".")
	for _, mark := range []string{"env-secret", secret[len(secret)-20:], "sealed-ca-key"} {
		if strings.Contains(sink.String(), mark) {
			t.Errorf("%q is in the audit log:\n%s", mark, sink)
		}
	}
}

// What was refused can be found by what was asked for, as the caller wrote it, and changes of rights by the people.
func TestAuditLogNamesWhatWasAskedFor(t *testing.T) {
	r := newRig(t)
	r.world()
	r.startAudited("s2", false) // it leads, and the other one asks it
	sink, _ := r.startAudited("s3", false)
	r.setLeader("s2")
	some := rights.Grant{Verbs: []rights.VerbPattern{"node.*", "job.*"}, Nodes: []string{"n2"}, Jobs: []string{"web"}}
	r.apply(&fsm.RoleSet{Role: rights.Role{Name: "some", Allow: []rights.Grant{some}}})
	r.bind("admin cert:alice", "viewer cert:bob", "some cert:eve")
	good, revoked := r.grantToken("ci", model.Hour, rights.Viewer), r.grantToken("old", model.Hour, rights.Admin)
	r.apply(&fsm.AccessTokenRevoke{ID: revoked.ID()})
	for _, tt := range []struct {
		who, method, path string
		body              any
		code              model.Code
		objects           string
	}{
		{"bob", http.MethodPost, "/v1/drains", map[string]any{"nodes": []string{"n1", "none"}}, "forbidden",
			"node/n1 node/none"},
		{"bob", http.MethodPost, "/v1/nodes/01N1/cordon", nil, "forbidden", "node/01N1"},
		{"bob", http.MethodPost, "/v1/jobs", map[string]any{"job": spec("bank", 1)}, "forbidden", "job/bank"},
		{"bob", http.MethodPost, "/v1/jobs/web/stop", nil, "forbidden", "job/web"},
		{"bob", http.MethodPost, "/v1/bindings", map[string]any{"role": "admin", "to": "cert:bob"}, "forbidden",
			"role/admin cert:bob"},
		{"bob", http.MethodPost, "/v1/access-tokens", map[string]any{"name": "x", "roles": []string{"admin"}, "ttl": 5},
			"forbidden", "member/token:x role/admin"},
		{"eve", http.MethodPost, "/v1/drains", map[string]any{"nodes": []string{"01N1"}}, "forbidden", "node/01N1"},
		{"eve", http.MethodPost, "/v1/jobs/bank/stop", nil, "forbidden", "job/bank"},
		{"alice", http.MethodPost, "/v1/jobs/none/stop", nil, "not_found", "job/none"},
		{"alice", http.MethodPost, "/v1/bindings", map[string]any{"role": "admin", "to": "cert:bob"}, "",
			"role/admin cert:bob"},
		{"alice", http.MethodPost, "/v1/bindings/revoke", map[string]any{"role": "admin", "to": "cert:bob"}, "",
			"role/admin cert:bob"},
		{"alice", http.MethodPut, "/v1/roles/some", map[string]any{"allow": []any{map[string]any{"verbs": []string{"*"}}}},
			"", "role/some cert:eve"},
	} {
		seen := len(sink.lines())
		r.client(pki.RoleCLI, tt.who, "s3").Do(t.Context(), tt.method, tt.path, nil, tt.body)
		all := sink.next(seen)
		last := all[len(all)-1]
		if strings.Join(last.Objects, " ") != tt.objects || last.Code != string(tt.code) || last.Subject != "cert:"+tt.who {
			t.Errorf("%s %s %s %v: %+v", tt.who, tt.method, tt.path, tt.body, last)
		}
	}
	for header, want := range map[string]string{
		bearerOf(good): "token:ci " + string(good.ID()), bearerOf(revoked): "token:old " + string(revoked.ID()),
		bearerOf(pki.NewAccessToken()): " ",
	} {
		seen := len(sink.lines())
		r.bearer("", http.MethodPost, "s3", "/v1/nodes/n1/cordon", header)
		all := sink.next(seen)
		last := all[len(all)-1]
		if last.Subject+" "+last.Token != want || last.Outcome != audit.Refused ||
			!slices.Equal(last.Objects, []string{"node/n1"}) {
			t.Errorf("want %s: %+v", want, last)
		}
	}
}

// newest returns the index of the newest entry.
func (r *rig) newest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index
}

// With required, what can't be recorded is refused and not done. Without, it is done.
func TestRequiredAuditLog(t *testing.T) {
	r := newRig(t)
	r.world()
	strict, strictLog := r.startAudited("s2", true)
	loose, looseLog := r.startAudited("s3", false)
	for _, sink := range []*auditSink{strict, loose} {
		sink.fail(errors.New("no space left on device"))
	}
	before := r.entries()
	c := r.client(pki.RoleCLI, "alice", "s2")
	for method, path := range map[string]string{http.MethodPost: "/v1/nodes/n1/cordon", http.MethodGet: "/v1/jobs/web"} {
		_, _, err := c.Do(t.Context(), method, path, nil, nil)
		wantCode(t, err, model.CodeAuditUnavailable)
	}
	get(t, c, "/v1/nodes") // reveals nothing
	if now := r.entries(); now != before {
		t.Errorf("%d entries were made", now-before)
	}
	post(t, r.client(pki.RoleCLI, "alice", "s3"), "/v1/nodes/n1/cordon", nil)
	eventually(t, "the other log fails too", func() bool { return looseLog.Failing() != "" })
	strict.fail(nil)
	eventually(t, "the log works again", func() bool { return strictLog.Failing() == "" })
	post(t, c, "/v1/nodes/n1/uncordon", nil)
	all := strict.next(len(strict.lines()) - 2)
	if !strings.Contains(strict.String(), `"stage":"lost"`) || all[len(all)-1].Outcome != audit.Done {
		t.Errorf("lines: %s", strict)
	}
}

// A followed log has a line when it begins, and one when it ends.
func TestFollowedLogIsInTheAuditLog(t *testing.T) {
	r := newRig(t)
	r.world()
	r.runAgent("01N1", "n1", &logAgent{end: make(chan struct{})})
	sink, _ := r.startAudited("s2", false)
	c := r.client(pki.RoleCLI, "alice", "s2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow := reach.Request{Path: "/v1/instances/inst-a/logs", Query: values("follow=true&stream=stdout")}
	resp := must(c.Open(ctx, follow))(t)
	defer resp.Body.Close()
	eventually(t, "the begin", func() bool { return len(sink.lines()) == 1 })
	cancel()
	all := sink.next(1)
	begun := sink.lines()[0]
	if begun.Stage != audit.Begun || begun.Operation != "instance-logs" || all[0].Call != begun.Call ||
		all[0].Outcome != audit.Done || !slices.Equal(all[0].Objects, []string{"instance/inst-a"}) {
		t.Errorf("%+v, %+v", begun, all)
	}
}

// With a log that is required, somebody without rights can't fill it with calls that begin: after 60 in a minute the
// others are refused without lines of their own, and counted.
func TestCallsWithoutRightsBeginOnlySoOften(t *testing.T) {
	r := newRig(t)
	r.world()
	sink, log := r.startAudited("s2", true)
	r.bind("viewer cert:nobody", "admin cert:alice")
	nobody := r.client(pki.RoleCLI, "nobody", "s2")
	for range 200 {
		_, _, err := nobody.Do(t.Context(), http.MethodPost, "/v1/nodes/n1/cordon", nil, map[string]any{})
		wantCode(t, err, model.CodeForbidden)
	}
	if _, _, err := r.client(pki.RoleCLI, "alice", "s2").Do(t.Context(), http.MethodPost, "/v1/nodes/n1/cordon", nil,
		map[string]any{}); err != nil {
		t.Error(err)
	}
	log.Record(audit.Line{Stage: audit.Ended, Operation: "end"})
	eventually(t, "the end", func() bool { return strings.Contains(sink.String(), `"end"`) })
	stages := map[audit.Stage]int{}
	for _, line := range sink.lines() {
		if line.Subject == "cert:nobody" {
			stages[line.Stage]++
		}
	}
	if stages[audit.Begun] != 60 || stages[audit.Ended] != 60 {
		t.Errorf("%v", stages)
	}
}

// What agents do is not recorded, and what they may not do is.
func TestRefusedAgentsAreInTheAuditLog(t *testing.T) {
	r := newRig(t)
	r.world()
	sink, log := r.startAudited("s2", false)
	c := r.client(pki.RoleAgent, "n2", "s2")
	n1, _ := r.machine.Current().Nodes.Get("01N1")
	n2, _ := r.machine.Current().Nodes.Get("01N2")
	must(c.Report(t.Context(), transport.ReportRequest{Node: n2.ID, Epoch: n2.Agent.Epoch}))(t)
	for range 100 {
		_, err := c.Report(t.Context(), transport.ReportRequest{Node: n1.ID, Epoch: n1.Agent.Epoch})
		wantCode(t, err, model.CodeForbidden)
	}
	c.Do(t.Context(), http.MethodGet, "/v1/nodes", nil, nil)
	log.Record(audit.Line{Stage: audit.Ended, Operation: "end"})
	eventually(t, "the end", func() bool { return strings.Contains(sink.String(), `"end"`) })
	operations := map[string]int{}
	for _, line := range sink.lines() {
		operations[line.Operation]++
		if line.Operation != "end" && (line.Subject != "agent:n2" || line.Outcome != audit.Refused ||
			!strings.HasPrefix(line.Peer, "127.0.0.1:")) {
			t.Errorf("%+v", line)
		}
	}
	delete(operations, "end")
	if n := operations["agent-report"]; n < 10 || n > 60 || !maps.Equal(operations, map[string]int{"agent-report": n}) &&
		operations["list-nodes"] != 1 {
		t.Errorf("%v", operations)
	}
}
