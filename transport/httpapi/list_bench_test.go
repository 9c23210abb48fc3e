package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// BenchmarkListNodes measures the request of "outspan node ls" for 5,000 nodes over TLS, and the decoding of the
// answer.
func BenchmarkListNodes(b *testing.B) {
	const nodes = 5000
	r := newRig(b)
	for i := range nodes {
		name := fmt.Sprintf("n%05d", i)
		r.apply(&fsm.NodeRegister{
			ID: model.NodeID(fmt.Sprintf("01M806XJYB45EV0S9CRQM%05d", i)), Name: name,
			Agent: model.AgentInfo{BootID: "01M806XJYB45EV0S9CRQMXVGM4", Incarnation: "01M806XJYB45EV0S9CRQMXVGM5",
				Address: "127.0.0.1", Version: "1.2.3"},
			Shape: model.NodeShape{
				Capacity: model.Resources{CPU: 64_000, MemoryBytes: 256 << 30},
				Labels:   map[string]string{"rack": "r01", "disk": "ssd"}, PortMin: 20000, PortMax: 31999,
				Attributes: map[string]string{"os": "linux", "arch": "amd64", "cpus": "16", "kernel": "6.1.0", "hostname": name},
			},
		})
	}
	c := r.cli()
	var answer reach.Answer
	ask := func(b *testing.B) {
		var err error
		if answer, err = c.Send(b.Context(), reach.Request{Path: "/v1/nodes"}); err != nil {
			b.Fatal(err)
		}
	}
	ask(b)
	b.Run("ask", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ask(b)
		}
		b.ReportMetric(float64(len(answer.Body)), "bytes/answer")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var list struct{ Items []api.Node }
			if err := json.Unmarshal(answer.Body, &list); err != nil || len(list.Items) != nodes {
				b.Fatal(len(list.Items), err)
			}
		}
	})
}
