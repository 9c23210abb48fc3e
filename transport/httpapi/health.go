package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

func (s *Server) healthOperations() []operation {
	alive := getRoute("healthz", "/healthz", "health", "This process answers")
	ready := getRoute("readyz", "/readyz", "health",
		"This server has caught up and knows a leader; with leader=1: it leads")
	metrics := getRoute("metrics", "/metrics", "health", "Metrics in the Prometheus text format")
	alive.allow, ready.allow, metrics.allow = forAll, forAll, forCLI|forServer
	alive.alone, ready.alone, metrics.alone = true, true, true
	ops := []operation{
		plain(alive, document{answer: contentTypeJSON, schema: api.Health{}}, http.HandlerFunc(s.healthz)),
		plain(ready,
			document{answer: contentTypeJSON, schema: api.Health{},
				params: params(queryParam("leader", "1: only the leader is ready"))}, http.HandlerFunc(s.readyz)),
		s.openAPI(),
	}
	if s.cfg.Metrics != nil {
		ops = append(ops, plain(metrics, document{answer: "text/plain"}, s.cfg.Metrics))
	}
	return ops
}

func (s *Server) health() api.Health {
	_, self, ok := s.cfg.Consensus.Leader()
	state, _ := s.cfg.Store.Watch()
	return api.Health{Status: "ok", Name: s.cfg.Name, Leader: ok && self, Index: state.Index, Disk: s.disk()}
}

func (s *Server) disk() api.Disk {
	if !s.cfg.Freshness.TakesEntries() {
		return api.DiskFull
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	members, _ := s.members(ctx) // after an error, the result is DiskUnknown
	for _, m := range members {
		if m.Name == s.cfg.Name && m.Disk != "" {
			return m.Disk
		}
	}
	return api.DiskUnknown
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, contentTypeJSON, s.health())
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	leader, self, ok := s.cfg.Consensus.Leader()
	asked := r.URL.Query().Get("leader")
	switch {
	case !s.cfg.Freshness.CaughtUp():
		writeError(w, model.Refuse(model.CodeNotCaughtUp, "this server is still catching up"))
	case !ok:
		writeError(w, noLeader())
	case asked != "" && asked != "0" && !self:
		writeError(w, model.Refuse(model.CodeNoLeader, "this server does not lead").WithHint("the leader is %s", leader.Name))
	default:
		writeJSON(w, http.StatusOK, contentTypeJSON, s.health())
	}
}
