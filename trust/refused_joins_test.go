package trust_test

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// record collects the log and the counts of an engine. Safe for concurrent use.
type record struct {
	mu    sync.Mutex
	text  bytes.Buffer
	codes map[model.Code]int
}

// Write implements io.Writer.
func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) count(code model.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codes[code]++
}

func (r *record) look() (text string, codes map[model.Code]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String(), r.codes
}

// Each refused join is counted. The log names the source, the token, the name and the code of the first ones in each
// minute, and then how many it left out. It never has the token itself. A good join leaves no line.
func TestRefusedJoinsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notes := &record{codes: map[model.Code]int{}}
		r := newRig(t)
		r.engine = func(c *trust.Config) {
			c.Logger, c.JoinRefused = hclog.New(&hclog.LoggerOptions{Output: notes}), notes.count
		}
		s := r.found(time.Hour)
		s.lead()
		s.run()
		from := func(host byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, host), Port: 77} }
		der, _ := request(t, pki.RoleAgent, "n1")
		q := transport.JoinRequest{Agent: der}
		must(s.joinFrom(from(1), s.token(pki.RoleAgent), q))(t)
		gone := s.token(pki.RoleAgent)
		s.do(&fsm.TokenRevoke{ID: model.TokenID(gone.ID())})
		for host := range byte(15) {
			_, err := s.joinFrom(from(host), gone, q)
			wantCode(t, err, model.CodeTokenRevoked)
		}
		text, codes := notes.look()
		line := "a join was refused: source=10.0.0.3 token=" + gone.ID() + " name=n1 code=token_revoked"
		if n := strings.Count(text, "a join was refused"); n != 10 || !strings.Contains(text, line) {
			t.Errorf("%d lines, want 10 with %q:\n%s", n, line, text)
		}
		if codes[model.CodeTokenRevoked] != 15 || len(codes) != 1 {
			t.Errorf("counted %v", codes)
		}
		if strings.Contains(text, gone.Reveal()) || strings.Contains(text, "osj1") {
			t.Errorf("the log has a token:\n%s", text)
		}
		time.Sleep(2 * time.Minute)
		if _, err := s.joinFrom(from(1), pki.JoinToken{}, q); codeOf(err) != model.CodeInvalid {
			t.Errorf("no token: %v", err)
		}
		text, _ = notes.look()
		if !strings.Contains(text, "not logged: not_logged=5") || strings.Count(text, "a join was refused") != 11 {
			t.Errorf("after two minutes:\n%s", text)
		}
	})
}
