package httpapi_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// Nodes, instances and deployments name no instance, group, service or drain that the caller may not read.
func TestObjectsHideNames(t *testing.T) {
	r := twoTeams(t)
	low := spec("low", 1)
	low.Class = "batch"
	low.Groups[0].Ports[0].Static = 20500
	r.apply(&fsm.JobSubmit{Spec: low})
	high := spec("high", 1)
	high.Groups[0].Ports[0].Static = 20500
	r.apply(&fsm.JobSubmit{Spec: high})
	put := func(id model.InstanceID, group model.GroupID, port int, observed model.Observed) {
		g, _ := r.machine.State().Groups.Get(group)
		r.apply(&fsm.InstancePlace{ID: id, Group: group, Version: g.Version, Node: "01N1",
			Ports: model.Ports{{Name: "http", Number: port}}, Cause: model.CauseScaleUp})
		r.apply(&fsm.NodeReport{ID: "01N1", Epoch: r.epoch("01N1"), Self: &model.SelfReport{Gen: 1,
			Ports: []model.PortProblem{{Port: 7001, Service: "bank", Code: model.PortTaken, Reason: "service bank has it"}}},
			Instances: []model.InstanceStatus{{ID: id, Generation: 1, Observed: observed}}})
	}
	put("victim-of-high", "low/http", 20500, model.ObservedReady)
	put("failed-bank", "bank-a/http", 20011, model.ObservedFailed)
	put("acked-bank", "bank-b/http", 20012, model.ObservedReady)
	n, _ := r.machine.State().Nodes.Get("01N1")
	g, _ := r.machine.State().Groups.Get("high/http")
	r.apply(&fsm.InstanceStop{ID: "victim-of-high", Cause: model.CausePreempted, By: "place-of-high"},
		&fsm.InstancePlace{ID: "place-of-high", Group: "high/http", Version: g.Version, Node: "01N1",
			Ports: model.Ports{{Name: "http", Number: 20500}}, Cause: model.CauseScaleUp,
			Awaits: []model.InstanceID{"victim-of-high"}, NodeVersion: n.Version})
	bob, alice := r.client(pki.RoleCLI, "bob"), r.client(pki.RoleCLI, "alice")
	check := func(path, job, hides string) {
		t.Helper()
		r.apply(&fsm.RoleSet{Role: rights.Role{Name: "mine", Allow: []rights.Grant{
			{Verbs: []rights.VerbPattern{"job.read", "instance.read"}, Jobs: []string{job}},
			{Verbs: []rights.VerbPattern{"node.read"}, Nodes: []string{"n1"}}}}})
		names := regexp.MustCompile(hides)
		if all := said(t, alice, "GET", path, nil, nil); !names.MatchString(all) {
			t.Errorf("%s: alice gets %s", path, all)
		}
		got := said(t, bob, "GET", path, nil, nil)
		if found := names.FindString(got); found != "" || !strings.HasPrefix(got, "{") || !strings.Contains(got, "hidden") &&
			!strings.Contains(got, "you may not see") {
			t.Errorf("%s names %s: %s", path, found, got)
		}
	}
	check("/v1/instances/place-of-high", "high", "victim-of-high")
	check("/v1/instances/victim-of-high", "low", "place-of-high")
	r.apply(&fsm.DrainStart{ID: "own-drain", Nodes: []string{"n1"}, Options: model.DrainOptions{Deadline: model.Hour}})
	r.apply(&fsm.NodeAck{ID: "01N1", Instances: []model.InstanceID{"acked-bank"}})
	for d := range r.machine.State().Deployments.All() {
		if strings.HasPrefix(string(d), "web-") {
			r.apply(&fsm.DeploymentStep{ID: d, Status: model.DeploymentFailed,
				Reason: "no progress for 10m0s; instance hidden-inst: replacement_pending: node/n2 is full."})
		}
	}
	check("/v1/nodes/n1", "web", `bank-a/http|acked-bank|service bank|"bank"`)
	check("/v1/nodes", "web", `bank-a/http|acked-bank|service bank|"bank"`)
	check("/v1/deployments", "web", `hidden-inst|n2`)
}
