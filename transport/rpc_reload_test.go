package transport_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// After a reload, the servers see the agent's new certificate in the next call, even while earlier calls are open.
// Those get their answers. Their connection ends after the last of them.
func TestAgentShowsItsNewCertificate(t *testing.T) {
	ca := authority(t, "test")
	var mu sync.Mutex
	var shown []string
	release := make(chan struct{})
	waiting := make(chan struct{}, 1)
	s := agentServer(t, ca,
		func(ctx context.Context, _ model.Subject, call transport.AgentCall, question []byte) ([]byte, error) {
			if call == transport.CallAssignments {
				waiting <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return transport.EncodeCBOR(transport.Assignments{})
			}
			mu.Lock()
			shown = append(shown, string(transport.ShownFrom(ctx).Key))
			mu.Unlock()
			return answerReport(question)
		})
	creds := credentials(t, ca, pki.RoleAgent, "n1")
	c := must(transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + s.addr}, Credentials: creds,
		RetryFor: -1}))(t)
	t.Cleanup(c.Close)
	var polls sync.WaitGroup
	for range 3 {
		polls.Go(func() {
			if _, err := c.Assignments(t.Context(), transport.AssignmentsRequest{Wait: model.Minute}); err != nil {
				t.Errorf("an open call was cut off: %v", err)
			}
		})
		<-waiting
		for range 2 {
			if _, err := c.Report(t.Context(), transport.ReportRequest{Epoch: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := creds.Reload(); err != nil { // these credentials make a new key each time
			t.Fatal(err)
		}
	}
	for i := 0; i < 6; i += 2 {
		if shown[i] != shown[i+1] || i > 0 && shown[i] == shown[i-1] {
			t.Errorf("calls %d and %d: the keys are %x", i, i+1, shown)
		}
	}
	if n := s.Stats().API; n != 3 {
		t.Errorf("%d connections are open, want one for each open call", n)
	}
	close(release)
	polls.Wait()
	if _, err := c.Report(t.Context(), transport.ReportRequest{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(15 * time.Second); s.Stats().API != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open, want 1", s.Stats().API)
		}
	}
}

// A client can be used after Close. Close ends its connection even while calls overlap all the time.
func TestClosedClientDialsAgain(t *testing.T) {
	ca := authority(t, "test")
	s := agentServer(t, ca,
		func(_ context.Context, _ model.Subject, _ transport.AgentCall, question []byte) ([]byte, error) {
			return answerReport(question)
		})
	c := agentClient(t, ca, s.addr)
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 200 {
				if i%20 == 0 {
					c.Close()
				}
				if _, err := c.Report(t.Context(), transport.ReportRequest{Epoch: 1}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	if s.Stats().Accepted < 2 {
		t.Error("Close closed no connection")
	}
}
