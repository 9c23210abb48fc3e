package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// BenchmarkWriteLabel measures a leader's work for one small write. It includes neither the connection nor raft.
func BenchmarkWriteLabel(b *testing.B) {
	r := newRig(b)
	for i := range 200 {
		id := model.NodeID(fmt.Sprintf("01N%d", i))
		r.apply(&fsm.NodeRegister{ID: id, Name: fmt.Sprint("n", i),
			Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1", Key: make([]byte, 32)},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 4 << 30},
				Labels: map[string]string{"rack": "r1", "disk": "ssd"}}})
	}
	who := transport.WithSubject(b.Context(), model.Subject{Kind: model.SubjectCert, Name: "alice"})
	handler := r.servers["s1"].api
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body := fmt.Appendf(nil, `{"labels":{"bench":"%d"}}`, i)
		req := httptest.NewRequest(http.MethodPost,
			fmt.Sprintf("/v1/nodes/n%d/label?request_id=01K9ZX4Q8B2M7V5T9%d", i%200, i), bytes.NewReader(body)).WithContext(who)
		req.Header.Set("Content-Type", "application/json")
		w := &sink{header: http.Header{}}
		handler.ServeHTTP(w, req)
		if w.status != http.StatusOK {
			b.Fatalf("status %d: %s", w.status, w.body.String())
		}
	}
}

// sink is an http.ResponseWriter that stores the response.
type sink struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(status int) { s.status = status }

func (s *sink) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.body.Write(p)
}

func (s *sink) SetReadDeadline(time.Time) error { return nil }

var _ io.Writer = (*sink)(nil)
