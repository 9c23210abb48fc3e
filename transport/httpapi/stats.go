package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	statsWait   = 10 * time.Second // for the answers of all agents of a job; an agent takes up to 2.6 s
	statsAtOnce = 128              // agents asked at a time: they mostly wait
)

type jobStatsInput struct {
	JobPath
	Group string `query:"group" doc:"of this group only"`
}

// statsOperations run on the server that gets the request, and ask the agents.
func (s *Server) statsOperations() []operation {
	one := getRoute("instance-stats", "/v1/instances/{id}/stats", "instances",
		"Show what an instance uses: CPU, memory, processes, disk. Takes about a second")
	job := getRoute("job-stats", "/v1/jobs/{name}/stats", "jobs",
		"Show what each instance of a job uses: CPU, memory, processes, disk. Takes a second or more")
	one.allow, job.allow, one.run, job.run = forCLI, forCLI, runHere, runHere
	stats := statsReader{s}
	return []operation{
		{route: one, register: func(a huma.API) { huma.Register(a, one.huma(), stats.ofInstance) }},
		{route: job, register: func(a huma.API) { huma.Register(a, job.huma(), stats.ofJob) }},
	}
}

// statsReader answers the questions what instances use.
type statsReader struct{ *Server }

// ofInstance answers for one instance. Codes: not_found, ambiguous, forbidden, not_running, agent_unreachable, busy.
func (s statsReader) ofInstance(ctx context.Context, in *InstancePath) (*body[api.InstanceStats], error) {
	state, c, verb := s.cfg.Store.Current(), callerFrom(ctx), verbs["instance-stats"]
	i, refusal := state.Finder(s.judge.sight(state, c, verb)).FindInstance(in.ID)
	if refusal != nil {
		return nil, asAnswer(refusal)
	}
	err := s.judge.mayDo(state, c, verb, instanceObject(state, i))
	if err == nil && (i.Terminal() || i.Status.Observed == model.ObservedFailed) {
		err = model.Refuse(model.CodeNotRunning, "instance %s has ended", i.ID).
			WithHint("see: outspan instance why %s", i.ID)
	}
	n, known := state.Nodes.Get(i.Node)
	if err == nil && !known {
		err = nodeGone(i)
	}
	var answer []transport.InstanceUse
	if err == nil {
		workFrom(ctx).end() // waiting for the agent must not keep the caller's turn
		target := url.URL{Path: transport.PathAgentStats, RawQuery: url.Values{"instance": {string(i.ID)}}.Encode()}
		err = s.withHint(n, s.askAgentFor(ctx, agentWait, n, target, &answer))
	}
	if err != nil {
		return nil, asAnswer(err)
	}
	out := statsOf(n.Name, i)
	out.take(answer)
	if p := out.Problem; p != nil {
		return nil, asAnswer(&model.Error{Code: p.Code, Message: p.Message, Hint: p.Hint})
	}
	return &body[api.InstanceStats]{Index: decimal(state.Index), Body: out.InstanceStats}, nil
}

// ofJob answers for the instances of a job that have not ended and that the caller may read. An instance whose use is
// not known has the reason. Codes: not_found, ambiguous, busy.
func (s statsReader) ofJob(ctx context.Context, in *jobStatsInput) (*body[api.JobStats], error) {
	state, c, verb := s.cfg.Store.Current(), callerFrom(ctx), verbs["job-stats"]
	j, refusal := state.Finder(s.judge.sight(state, c, verb)).FindJob(in.Name)
	if refusal == nil && in.Group != "" && !state.Groups.Has(model.NewGroupID(j.Name, in.Group)) {
		refusal = model.Refuse(model.CodeNotFound, "job %s has no group %q", j.Name, clip(in.Group))
	}
	if refusal != nil {
		return nil, asAnswer(refusal)
	}
	done, err := s.measuring.begin(ctx)
	if err != nil {
		return nil, asAnswer(err)
	}
	defer done()
	out := api.JobStats{Job: j.Name, Items: []api.InstanceStats{}, Index: state.Index}
	rows, nodes := map[model.NodeID][]*instanceStats{}, []*fsm.Node{}
	for group := range state.GroupsOf(j.Name) {
		if _, name := group.Split(); in.Group != "" && name != in.Group {
			continue
		}
		for i := range state.InstancesOf(group) {
			if i.Terminal() {
				continue
			}
			if s.judge.mayDo(state, c, verb, instanceObject(state, i)) != nil {
				out.Hidden++
				continue
			}
			n, known := state.Nodes.Get(i.Node)
			if !known {
				row := statsOf(string(i.Node), i)
				row.fail(nodeGone(i))
				out.Items = append(out.Items, row.InstanceStats)
				continue
			}
			if len(rows[n.ID]) == 0 {
				nodes = append(nodes, n)
			}
			rows[n.ID] = append(rows[n.ID], statsOf(n.Name, i))
		}
	}
	limited, cancel := context.WithTimeout(ctx, statsWait)
	defer cancel()
	target := url.URL{Path: transport.PathAgentStats, RawQuery: url.Values{"job": {string(j.Name)}}.Encode()}
	askEach(limited, s.Server, nodes, target, statsAtOnce, func(n *fsm.Node, answer []transport.InstanceUse, err error) {
		for _, row := range rows[n.ID] {
			if err != nil {
				row.fail(s.withHint(n, err))
				continue
			}
			row.take(answer)
		}
	})
	for _, of := range rows {
		for _, row := range of {
			out.Items = append(out.Items, row.InstanceStats)
		}
	}
	slices.SortFunc(out.Items, func(a, b api.InstanceStats) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.ID, b.ID))
	})
	return &body[api.JobStats]{Index: decimal(state.Index), Body: out}, nil
}

func nodeGone(i *fsm.Instance) error {
	return model.Refuse(model.CodeNotFound, "node %s of instance %s is gone", i.Node, i.ID)
}

// withHint adds to the error of an agent that does not answer what to do next.
func (s statsReader) withHint(n *fsm.Node, err error) error {
	var known *model.Error
	if errors.As(err, &known) && known.Code == model.CodeAgentUnreachable {
		return known.WithHint("see: outspan node status %s", n.Name)
	}
	if err != nil && known == nil {
		s.log.Warn("can't use an agent's answer", "node", n.Name, "path", transport.PathAgentStats, "error", err)
	}
	return err
}

// instanceStats is an answer that still lacks what the agent says.
type instanceStats struct{ api.InstanceStats }

func statsOf(node string, i *fsm.Instance) *instanceStats {
	job, group := i.Group.Split()
	return &instanceStats{api.InstanceStats{ID: i.ID, Job: job, Group: group, Slot: i.Slot, Node: node}}
}

// take adds what the agent says of the instance.
func (i *instanceStats) take(answer []transport.InstanceUse) {
	at := slices.IndexFunc(answer, func(u transport.InstanceUse) bool { return u.ID == i.ID })
	if at < 0 || answer[at].Use == nil && answer[at].Problem == nil {
		i.fail(model.Refuse(model.CodeNotRunning, "instance %s has not started on node %s", i.ID, i.Node).
			WithHint("see: outspan instance why %s", i.ID))
		return
	}
	i.Use, i.Problem = answer[at].Use, answer[at].Problem
}

func (i *instanceStats) fail(err error) {
	p := api.NewProblem(err)
	i.Problem = &api.StatsProblem{Code: p.Code, Message: p.Message, Hint: p.Hint}
}
