package api_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// BenchmarkAgent is what a server does for the calls of an agent that runs one instance, without connection and log.
func BenchmarkAgent(b *testing.B) {
	r := newRig(b)
	r.world()
	r.place("inst-0", 2, "01N2", fsm.ObservedReady)
	who := transport.WithIdentity(b.Context(), transport.Identity{Cluster: "test", Role: transport.RoleAgent, Name: "n2"})
	handler := r.servers["s1"].api
	call := func(b *testing.B, path string, question func(i int) any) {
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			body, err := transport.EncodeCBOR(question(i))
			if err != nil {
				b.Fatal(err)
			}
			req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)).WithContext(who)
			req.Header.Set("Content-Type", transport.ContentTypeCBOR)
			w := &sink{header: http.Header{}}
			handler.ServeHTTP(w, req)
			if w.status != http.StatusOK {
				b.Fatalf("status %d: %s", w.status, w.body.String())
			}
		}
	}
	b.Run("assignments", func(b *testing.B) {
		call(b, transport.PathAgentAssignments, func(int) any { return transport.AssignmentsRequest{Node: "01N2", Epoch: 1} })
	})
	b.Run("report", func(b *testing.B) {
		call(b, transport.PathAgentReport, func(i int) any {
			status := fsm.InstanceStatus{ID: "inst-0", Generation: uint64(i) + 10, Observed: []fsm.Observed{fsm.ObservedReady, fsm.ObservedUnready}[i%2]}
			return transport.ReportRequest{Node: "01N2", Epoch: 1, Instances: []fsm.InstanceStatus{status}}
		})
	})
}
