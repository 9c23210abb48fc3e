package daemon

import (
	"os"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/series"
	"github.com/outspan/outspan/transport/httpapi"
)

// newSeries returns what keeps the figures of the last day. It needs s.cluster.
func (s *serverPart) newSeries() *series.Recorder {
	return series.New(series.Config{
		Server: s.p.cfg.Name, State: s.machine.Current, Wall: s.cluster.WallClock, Local: s.localFigures,
		Silence: func() (time.Duration, bool) { return s.cluster.StaleFor(), s.cluster.CaughtUp() },
		Use: func(node model.NodeID) (series.Use, bool) {
			use, ok := cluster.UseOf(s.cluster, node)
			return series.Use{CPU: use.CPU, MemoryBytes: use.MemoryBytes, Age: use.Age}, ok
		},
		Blocked: s.blocked, Peers: s.otherServers, Ask: s.peers.AskPeer, Log: s.p.log.Named("series"),
	})
}

// noteApply records how long a batch of entries took to apply.
func (s *serverPart) noteApply(d time.Duration) {
	s.counts.ObserveApply(d)
	s.applies.Note(d)
}

// otherServers returns the servers of the cluster besides this one.
func (s *serverPart) otherServers() (all []series.Peer) {
	for _, one := range s.cluster.Servers() {
		if one.Member && one.ID != s.cluster.ID() && one.Address != "" {
			all = append(all, series.Peer{Name: one.Name, Address: one.Address})
		}
	}
	return all
}

// blocked returns how many instances the running drains can't stop now.
func (s *serverPart) blocked() (n int) {
	q := httpapi.Question{State: *s.machine.Current(), Live: s.cluster.Live(), Now: s.cluster.Now()}
	stuck := map[model.InstanceID]bool{}
	for id, d := range q.State.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			blockedBy(q, id, stuck)
		}
	}
	return len(stuck)
}

func blockedBy(q httpapi.Question, id model.DrainID, stuck map[model.InstanceID]bool) {
	for _, part := range (explainer{}).DrainStatus(q, id) {
		for _, b := range part.Blockers {
			if b.Instance != "" {
				stuck[b.Instance] = true
			}
		}
	}
}

// localFigures returns what this server knows of itself.
func (s *serverPart) localFigures() series.Local {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(sample)
	raft := s.raftPart()
	l := series.Local{Leads: raft.Leader, Applied: s.machine.Current().Index, Lag: raft.Lag, Silence: s.cluster.StaleFor(),
		Apply: s.applies.Take(), Sync: s.syncs.Take(), Heap: int64(sample[0].Value.Uint64()),
		Goroutines: int(sample[1].Value.Uint64()), FreeBytes: s.ownMachine().FreeBytes}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			l.Resident = pages * int64(os.Getpagesize())
		}
	}
	return l
}
