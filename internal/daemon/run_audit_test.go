package daemon

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/outspan/outspan/audit"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// lines is an audit.Sink in memory.
type lines struct {
	mu     sync.Mutex
	failed error
	text   bytes.Buffer
}

func (l *lines) Write(p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.text.Write(p)
	}
	return l.failed
}

func (l *lines) Sync() error   { return nil }
func (l *lines) Reopen() error { return nil }
func (l *lines) Close() error  { return nil }

// auditedServer returns a server with an audit log, and stop, which returns all lines.
func auditedServer(t *testing.T, required bool, failed error) (s *serverPart, stop func() string) {
	t.Helper()
	sink := &lines{failed: failed}
	s = &serverPart{machine: fsm.NewMachine(), audit: audit.New(audit.Config{Server: "s1", Required: required,
		Sinks: []audit.Sink{sink}})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.audit.Run(ctx) }()
	var once sync.Once
	stop = func() string {
		once.Do(func() { cancel(); <-ended })
		sink.mu.Lock()
		defer sink.mu.Unlock()
		return sink.text.String()
	}
	t.Cleanup(func() { stop() })
	return s, stop
}

// Joins are recorded with the token's id and the name that was asked for, refused ones too. The secret is not, and
// strangers can't fill the log.
func TestJoinsAreInTheAuditLog(t *testing.T) {
	ca, err := transport.NewAuthority("test", 0)
	if err != nil {
		t.Fatal(err)
	}
	token, err := pki.NewJoinToken(pki.RoleAgent, ca.Root())
	if err != nil {
		t.Fatal(err)
	}
	der, _, err := pki.NewRequest(pki.RoleAgent, "n7", nil)
	if err != nil {
		t.Fatal(err)
	}
	source := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 4711}
	request := transport.JoinRequest{Token: token.Reveal(), Agent: der, Address: "10.0.0.9:7640"}
	var answer error
	calls := 0
	next := func(context.Context, net.Addr, transport.JoinRequest) (transport.JoinReply, error) {
		calls++
		return transport.JoinReply{}, answer
	}
	s, stop := auditedServer(t, false, nil)
	join := s.auditJoins(next)
	if _, err := join(t.Context(), source, request); err != nil {
		t.Fatal(err)
	}
	answer = model.Refuse(model.CodeTokenInvalid, "there is no such token")
	for range 500 {
		if _, err := join(t.Context(), source, request); err == nil {
			t.Fatal("a refused join is done")
		}
	}
	text := stop()
	first, _, _ := strings.Cut(text, "\n")
	for _, want := range []string{`"operation":"join"`, `"outcome":"done"`, `"token":"` + token.ID(), `"agent:n7"`,
		`"10.0.0.9:4711"`} {
		if !strings.Contains(first, want) {
			t.Errorf("no %s in %s", want, first)
		}
	}
	refused := strings.Count(text, `"code":"token_invalid"`)
	if refused < 2 || refused > 100 || !strings.Contains(text, `"stage":"counted"`) {
		t.Errorf("%d lines about refused joins", refused)
	}
	revealed := token.Reveal()
	if secret := revealed[strings.LastIndex(revealed, ".")+1:]; strings.Contains(text, secret) {
		t.Errorf("the secret is in the log: %s", text)
	}

	s, _ = auditedServer(t, true, errors.New("no space"))
	calls = 0
	_, err = s.auditJoins(next)(t.Context(), source, request)
	if codeOf(err) != model.CodeAuditUnavailable || calls != 0 {
		t.Errorf("a join that can't be recorded: %v, %d calls", err, calls)
	}
}
