package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// A refusal reaches the agent with its code, message and hint. The text of an internal error does not reach the agent.
func TestAgentRefusals(t *testing.T) {
	ca := authority(t, "test")
	s := agentServer(t, ca,
		func(_ context.Context, _ model.Subject, call transport.AgentCall, _ []byte) ([]byte, error) {
			if call == transport.CallServices {
				return nil, errors.New("the password is hunter2")
			}
			return nil, model.Refuse(model.CodeNameTaken, "taken").WithHint("take another")
		})
	c := agentClient(t, ca, s.addr)
	_, err := c.Register(t.Context(), transport.RegisterRequest{})
	wantCode(t, err, model.CodeNameTaken, "taken", "take another")
	_, err = c.Services(t.Context(), transport.ServicesRequest{})
	wantCode(t, err, model.CodeInternal)
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an inner error is shown: %v", err)
	}
	large := transport.ReportRequest{Node: model.NodeID(strings.Repeat("x", transport.DefaultMaxBody+1))}
	_, err = c.Report(t.Context(), large)
	wantCode(t, err, model.CodeTooLarge)
	_, err = c.Register(t.Context(), transport.RegisterRequest{}) // the connection is still in use
	wantCode(t, err, model.CodeNameTaken)
	if n := s.Stats(); n.Accepted != 1 {
		t.Errorf("%d connections", n.Accepted)
	}
}

// One agent's waiting calls take a bounded amount of memory. Another agent's calls are answered meanwhile.
func TestAgentCallsAreBounded(t *testing.T) {
	ca := authority(t, "test")
	release := make(chan struct{})
	s := agentServer(t, ca,
		func(_ context.Context, who model.Subject, _ transport.AgentCall, _ []byte) ([]byte, error) {
			if who.Name == "n1" {
				<-release
			}
			return transport.EncodeCBOR(transport.ReportReply{Index: 1})
		})
	large := transport.ReportRequest{Node: model.NodeID(strings.Repeat("x", 900<<10))}
	greedy := agentClient(t, ca, s.addr)
	refused, done := make(chan error, 30), make(chan error, 30)
	for range 30 {
		go func() {
			_, err := greedy.Report(t.Context(), large)
			if err != nil {
				refused <- err
			}
			done <- err
		}()
	}
	for range 30 - 9 { // 8 MiB have room for nine
		select {
		case err := <-refused:
			wantCode(t, err, model.CodeBusy, "agent:n1")
		case <-time.After(30 * time.Second):
			t.Fatal("calls beyond the bound are not refused")
		}
	}
	other := agentClientOf(t, ca, "n2", s.addr)
	if got, err := other.Report(t.Context(), large); err != nil || got.Index != 1 {
		t.Errorf("another agent's call: %d, %v", got.Index, err)
	}
	close(release)
	for range 30 {
		<-done
	}
	if _, err := greedy.Report(t.Context(), large); err != nil {
		t.Errorf("once the calls have their answers: %v", err)
	}
}
