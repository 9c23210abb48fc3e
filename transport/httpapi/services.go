package httpapi

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// backends returns a service's current backends: the group's ready instances that are not draining, on nodes that are
// not offline.
func (r *reading) backends(svc *fsm.Service) []model.Backend {
	found := []model.Backend{}
	for i := range r.InstancesOf(svc.Group) {
		n, ok := r.Nodes.Get(i.Node)
		if !i.Ready() || !ok || n.Health == model.HealthOffline {
			continue
		}
		if address, ok := r.endpoint(i, svc.Port); ok {
			found = append(found, model.Backend{Instance: i.ID, Node: i.Node, Address: address})
		}
	}
	return found
}

func (r *reading) service(svc *fsm.Service) api.Service {
	v := api.Service{Name: svc.Name, Group: svc.Group, Port: svc.Port, Expose: svc.Expose, Generation: svc.Generation,
		Backends: []api.Backend{}, Problems: r.closedOn(svc)}
	for _, b := range r.backends(svc) {
		v.Backends = append(v.Backends,
			api.Backend{Instance: b.Instance, Node: r.nodeName(b.Node), NodeID: b.Node, Address: b.Address})
	}
	return v
}

// wireServices returns every service in the form that agents get.
func (r *reading) wireServices() []transport.ServiceBackends {
	var all []transport.ServiceBackends
	for _, svc := range r.Services.All() {
		all = append(all, transport.ServiceBackends{Name: svc.Name, Expose: svc.Expose, Generation: svc.Generation,
			Backends: r.backends(svc)})
	}
	return all
}

type serviceList struct{ ListParams }

type serviceRead struct {
	ReadParams
	Name model.ServiceName `path:"name"`
}

func (s *Server) serviceOperations() []operation {
	listRoute := getRoute("list-services", "/v1/services", "services", "List services with their backends")
	oneRoute := getRoute("get-service", "/v1/services/{name}", "services", "Show a service with its backends")
	listRoute.allow, oneRoute.allow = forAll, forAll
	return []operation{
		list(s, listRoute, listing[serviceList, api.Service]{
			topics: topics[serviceList]("services"),
			rows: func(r *reading, _ *serviceList, from string, yield func(string, api.Service) bool) error {
				scan(r.Services, from, r.service, yield)
				return nil
			},
		}),
		read(s, oneRoute, topics[serviceRead]("services"), showService),
		s.discovery(),
	}
}

func showService(_ context.Context, r *reading, in *serviceRead) (api.Service, error) {
	svc, ok := r.Services.Get(in.Name)
	if !ok || !r.Sees("group/"+string(svc.Group)) {
		return api.Service{}, model.Refuse(model.CodeNotFound, "there is no service %q", clip(string(in.Name))).
			WithHint("list them with: outspan service ls")
	}
	return r.service(svc), nil
}

// discovery makes the operation that lists every port of every ready instance. Each server answers it from its own
// state, so that monitoring needs no leader.
func (s *Server) discovery() operation {
	rt := getRoute("prometheus-discovery", "/v1/sd/prometheus", "services",
		"List every port of every ready instance, for Prometheus' http_sd_configs")
	rt.allow = forCLI | forServer
	return plain(rt, document{answer: "application/json", schema: []api.ScrapeTarget{}},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			r := s.reading()
			w.Header().Set(api.HeaderIndex, decimal(r.Index))
			writeJSON(w, http.StatusOK, contentTypeJSON, r.scrapeTargets())
		}))
}

func (r *reading) scrapeTargets() []api.ScrapeTarget {
	all := []api.ScrapeTarget{}
	for _, i := range r.Instances.All() {
		if !i.Ready() {
			continue
		}
		n, ok := r.Nodes.Get(i.Node)
		if !ok {
			continue
		}
		job, group := i.Group.Split()
		for _, port := range i.Claims.Ports {
			all = append(all, api.ScrapeTarget{
				Targets: []string{net.JoinHostPort(n.Agent.Address, strconv.Itoa(port.Number))},
				Labels: map[string]string{
					"__meta_outspan_job": string(job), "__meta_outspan_group": group, "__meta_outspan_port": port.Name,
					"__meta_outspan_node": n.Name, "__meta_outspan_instance": string(i.ID),
					"__meta_outspan_slot": strconv.Itoa(i.Slot),
				},
			})
		}
	}
	return all
}
