package httpapi

import (
	"context"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Limits of one agent's reports, so that no agent can overload the leader. An agent sends only changes, and at most one
// report every 30 ms. With 500 instances whose facts change every second, it sends about 100 KB a second.
const (
	reportBytesPerSecond = 512 << 10
	reportBytesAtOnce    = 8 << 20
	reportCost           = 1 << 10 // bytes that are counted for each report in addition to its size
)

// limitReports wraps answer. It refuses a report before decoding it if the agent sends more bytes than allowed. Code:
// rate_limited.
func (s *Server) limitReports(answer answerCall) answerCall {
	return func(ctx context.Context, who caller, question []byte) ([]byte, error) {
		if !s.reportBytes.takeMany(who.Subject, float64(len(question)+reportCost)) {
			err := model.Refuse(model.CodeRateLimited,
				"the reports of the agent %s are more than %d bytes a second", who.Name, reportBytesPerSecond).
				WithHint("look at its log; it may go on in a few seconds")
			s.cfg.Refused(err)
			return nil, err
		}
		return answer(ctx, who, question)
	}
}

func (s *Server) reportAgent(ctx context.Context, who caller,
	q transport.ReportRequest) (transport.ReportReply, error) {
	if err := s.replaced(q.Cluster); err != nil {
		return transport.ReportReply{}, err
	}
	n, err := s.ownNode(who, q.Node)
	if err != nil {
		return transport.ReportReply{}, err
	}
	if refusal := n.TakesReport(q.Epoch); refusal != nil {
		return transport.ReportReply{}, refusal
	}
	report := &fsm.NodeReport{
		ID: q.Node, Epoch: q.Epoch, Full: q.Full, Instances: q.Instances, FactsGen: q.FactsGen, Transfers: q.Transfers,
		Holds: q.Holds, Incarnation: q.Incarnation, Self: q.Self,
	}
	state, err := s.trimReport(ctx, report)
	if err != nil {
		return transport.ReportReply{}, err
	}
	index := state.Index
	if report.News(state) { // false if the agent repeats a report whose answer was lost
		if report.Full && !s.inventories.take(who.Subject) {
			err := model.Refuse(model.CodeRateLimited,
				"the agent of node %s sends its whole inventory again and again", n.Name).
				WithHint("look at its log; it may go on in a few seconds")
			s.cfg.Refused(err)
			return transport.ReportReply{}, err
		}
		size, refusal := fsm.GroupSize([]fsm.Command{report})
		if refusal != nil {
			return transport.ReportReply{}, refusal
		}
		result, err := s.agents.reports.do(ctx, agentReport{who.Actor(), report, size})
		if err == nil && result.Refusal != nil {
			err = refusedAt(result.Refusal, result.Index)
		}
		if err != nil {
			return transport.ReportReply{}, err
		}
		index = result.Index
	}
	s.cfg.Liveness.Heard(q.Node)
	return transport.ReportReply{Index: index}, nil
}

// trimReport removes the parts of a report that would have no effect, so that the log does not store them. It returns
// the state with which it compared the report. If the report names an object that this server's state lacks, the state
// may be too old, so trimReport first waits for a read barrier.
func (s *Server) trimReport(ctx context.Context, report *fsm.NodeReport) (*fsm.State, error) {
	if refusal := report.CheckSize(); refusal != nil {
		s.cfg.Refused(refusal)
		return nil, refusal
	}
	state := s.cfg.Store.Current()
	if report.NamesUnknown(state) {
		if err := s.cfg.Consensus.ReadBarrier(ctx); err != nil {
			return nil, err
		}
		state = s.cfg.Store.Current()
	}
	report.Trim(state)
	return state, nil
}

// Limits of entries with reports.
const (
	reportsAtOnce = 256
	reportBytes   = fsm.MaxEntryBytes / 4 // bytes of all reports in an entry; a larger report has an entry of its own
	reportEntries = 8                     // entries that are proposed at once
)

// agentReport is a report that is to be written to the log.
type agentReport struct {
	by     model.Actor
	report *fsm.NodeReport
	size   int // encoded, in bytes
}

func (s *Server) newReports() batcher[agentReport, fsm.Result] {
	return batcher[agentReport, fsm.Result]{
		send: s.commitReports, weight: func(r agentReport) int { return r.size },
		bounds: batchBounds{calls: reportsAtOnce, weight: reportBytes, flying: reportEntries, time: writeLimit},
	}
}

// commitReports proposes reports in one entry. Each report has its own group, so a refusal does not affect the others.
func (s *Server) commitReports(ctx context.Context, reports []agentReport) ([]fsm.Result, error) {
	state := s.cfg.Store.Current()
	entry := fsm.Entry{Format: state.Format, At: max(state.Now, s.cfg.Consensus.Now()), Wall: time.Now().UnixMilli(),
		Actor: model.ActorAgents}
	for _, one := range reports {
		entry.Groups = append(entry.Groups, []fsm.Command{one.report})
	}
	if len(reports) == 1 {
		entry.Actor = reports[0].by
	}
	return s.proposeAll(ctx, entry)
}
