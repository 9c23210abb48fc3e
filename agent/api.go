package agent

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/transfer"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Handler returns the handler of the agent's own API. Servers and other agents call it through the TLS port, the
// command line through a local unix socket. The parameter metrics serves /metrics, which does not exist if metrics is
// nil. transport.SubjectFrom returns the caller. An unknown caller may use only /healthz.
//
//	GET /healthz                    always 200; reports whether the node is registered
//	GET /metrics
//	GET /v1/agent/status            Status, as JSON
//	GET /v1/agent/volumes           the data of volumes on this disk, as a list of transport.VolumeData
//	GET /v1/agent/image             the digest of the image that the parameter name names, as a transport.ResolvedImage
//	GET /v1/agent/images            the images on this node, as a list of transport.HeldImage
//	POST /v1/agent/images/prune     deletes images that nothing needs; see transport.PathAgentPrune
//	GET /v1/agent/stats             what instances use; see transport.PathAgentStats
//	GET /v1/agent/logs/{instance}   the logs of an instance, with the parameters of logQuery
//	POST /v1/agent/exec/{instance}    runs a command, as a stream; see api.ExecStart
//	POST /v1/agent/forward/{instance} passes connections to a port, as a stream; see api.ForwardStart
//	GET /v1/agent/transfer/{id}/... the data of volumes, for other agents; see transfer.Mover.Handler
func (a *Agent) Handler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	logs := newLogServer(a)
	mux.HandleFunc("GET /healthz", a.serveHealth)
	mux.Handle("GET /v1/agent/status",
		only(http.HandlerFunc(a.serveStatus), model.SubjectServer, model.SubjectCert, model.SubjectUID))
	mux.Handle("GET "+transport.PathAgentVolumes, only(http.HandlerFunc(a.serveVolumes), model.SubjectServer))
	mux.Handle("GET "+transport.PathAgentImage, only(http.HandlerFunc(a.serveImage), model.SubjectServer))
	mux.Handle("GET "+transport.PathAgentImages, only(http.HandlerFunc(a.serveImages), model.SubjectServer))
	mux.Handle("POST "+transport.PathAgentPrune, only(http.HandlerFunc(a.servePrune), model.SubjectServer))
	mux.Handle("GET "+transport.PathAgentStats,
		only(http.HandlerFunc(newStatsServer(a).serve), model.SubjectServer))
	mux.Handle("GET /v1/agent/logs/{instance}", only(http.HandlerFunc(logs.serve), model.SubjectServer))
	mux.Handle("POST "+transport.PathAgentExec+"{instance}", only(http.HandlerFunc(a.serveExec), model.SubjectServer))
	mux.Handle("POST "+transport.PathAgentForward+"{instance}",
		only(http.HandlerFunc(a.serveForward), model.SubjectServer))
	mux.Handle(transport.PathAgentTransfer, only(a.mover.Handler(), model.SubjectAgent))
	if metrics != nil {
		mux.Handle("GET /metrics",
			only(metrics, model.SubjectServer, model.SubjectCert, model.SubjectUID, model.SubjectAgent))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, model.Refuse(model.CodeNoRoute, "an agent has no such operation").
			WithHint("ask a server: agents only serve logs and their status"))
	})
	return mux
}

// only passes requests of callers of one of the kinds to next, and refuses all others. Code: forbidden.
func only(next http.Handler, kinds ...model.SubjectKind) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := transport.SubjectFrom(r.Context())
		if !ok || !slices.Contains(kinds, who.Kind) {
			writeProblem(w, model.Refuse(model.CodeForbidden, "this is not for the caller %s", who).
				WithHint("ask a server: it asks the agent"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func writeProblem(w http.ResponseWriter, err error) {
	p := api.NewProblem(err)
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the client has gone
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // an error means that the client has gone
}

func (a *Agent) serveHealth(w http.ResponseWriter, _ *http.Request) {
	now, _ := a.session.current()
	writeJSON(w, map[string]any{"status": "ok", "registered": now != registration{}})
}

// Status is what an agent knows about itself.
type Status struct {
	Node      model.NodeID      `json:"node"`
	Name      string            `json:"name"`
	Address   string            `json:"address"`
	Version   string            `json:"version"`
	Epoch     uint64            `json:"epoch"` // 0 if the node is not registered
	BootID    string            `json:"boot_id"`
	Problems  map[string]string `json:"problems"` // parts of the agent that don't work now, each with the reason
	Warnings  []string          `json:"warnings"` // what this node can't enforce
	Instances []InstanceView    `json:"instances"`
	Services  []door.Status     `json:"services"`
}

// InstanceView is an instance as its agent sees it. The servers may not know this state yet.
type InstanceView struct {
	ID       model.InstanceID `json:"id"`
	Group    model.GroupID    `json:"group"`
	Slot     int              `json:"slot"`
	Desired  model.Desired    `json:"desired"`
	Observed model.Observed   `json:"observed"`
	Reason   string           `json:"reason"`
	Restarts int              `json:"restarts"`
	LastExit string           `json:"last_exit"`
	Reported bool             `json:"reported"` // whether the servers have acknowledged this state
	Facts    facts            `json:"facts,omitempty"`
}

// Status returns what the agent knows about itself now. It does not block and may be called from any goroutine.
func (a *Agent) Status() Status {
	now, _ := a.session.current()
	st := Status{
		Node: a.home.node, Name: a.cfg.Name, Address: a.cfg.Node.Address, Version: a.cfg.Version, Epoch: now.epoch,
		BootID: a.identity.BootID, Problems: map[string]string{}, Warnings: a.cfg.Runtime.Capabilities().Notes,
		Instances: []InstanceView{}, Services: a.forward.status(),
	}
	a.mu.Lock()
	for part, problem := range a.problems {
		st.Problems[part] = problem
	}
	a.mu.Unlock()
	for _, m := range a.supervisors.list() {
		st.Instances = append(st.Instances, a.view(m))
	}
	return st
}

func (a *Agent) view(m *supervisor) InstanceView {
	want := m.wanted()
	status, _ := a.shared.reports.status(m.id)
	v := InstanceView{
		ID: m.id, Group: want.Group, Slot: want.Slot, Desired: want.Desired, Observed: status.Observed, Reason: status.Reason,
		Restarts: status.Restarts, Reported: a.shared.reports.delivered(m.id, status.Generation), Facts: status.Facts,
	}
	if t := m.current(); t != nil {
		if exit, ended := t.Exit(); ended {
			v.LastExit = exitText(exit)
		}
	}
	return v
}

func (a *Agent) serveVolumes(w http.ResponseWriter, _ *http.Request) {
	list, err := transfer.List(a.shared.volumes.root)
	if err != nil {
		writeProblem(w, diskError("list the data of volumes", err))
		return
	}
	writeJSON(w, list)
}

func (a *Agent) serveStatus(w http.ResponseWriter, _ *http.Request) { writeJSON(w, a.Status()) }
