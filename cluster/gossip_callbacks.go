package cluster

import (
	"bytes"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/fsm"
)

// memberlist calls the methods of these delegates under its own lock. The methods copy what they get into the Pool, and
// never call memberlist.

// gossipDelegate is a memberlist.Delegate. It returns this member's meta, and passes messages to Receive.
type gossipDelegate struct{ p *Pool }

// NodeMeta implements memberlist.Delegate. The meta always fits, because encodeMeta refuses a longer one.
func (d gossipDelegate) NodeMeta(limit int) []byte {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	if len(d.p.meta) > limit {
		return nil
	}
	return d.p.meta
}

// NotifyMsg implements memberlist.Delegate. It must not block, so it drops messages while the inbox is full.
func (d gossipDelegate) NotifyMsg(msg []byte) {
	select {
	case d.p.inbox <- slices.Clone(msg):
	default:
	}
}

// GetBroadcasts implements memberlist.Delegate. This package broadcasts nothing.
func (gossipDelegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate. This package adds nothing to an exchange of members.
func (gossipDelegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (gossipDelegate) MergeRemoteState([]byte, bool) {}

type gossipEvents struct{ p *Pool }

// NotifyJoin implements memberlist.EventDelegate.
func (e gossipEvents) NotifyJoin(n *memberlist.Node) { e.p.seen(n, fsm.GossipAlive) }

// NotifyUpdate implements memberlist.EventDelegate.
func (e gossipEvents) NotifyUpdate(n *memberlist.Node) { e.p.seen(n, fsm.GossipAlive) }

// NotifyLeave implements memberlist.EventDelegate. memberlist calls it for members that died and members that left.
func (e gossipEvents) NotifyLeave(n *memberlist.Node) { e.p.seen(n, fsm.GossipDead) }

// gossipPings is a memberlist.PingDelegate. It ends the suspicion of a member that answers a probe.
type gossipPings struct{ p *Pool }

// AckPayload implements memberlist.PingDelegate.
func (gossipPings) AckPayload() []byte { return nil }

// NotifyPingComplete implements memberlist.PingDelegate.
func (g gossipPings) NotifyPingComplete(other *memberlist.Node, _ time.Duration, _ []byte) {
	g.p.Heard(other.Name)
}

// gossipLog copies memberlist's log, with errors and warnings at debug level and other lines at trace level. It also
// finds suspected members in the log, because memberlist has no event for a suspicion.
type gossipLog struct {
	log     hclog.Logger
	suspect func(name string)
}

func newGossipLog(to hclog.Logger, suspect func(string)) *log.Logger {
	return log.New(gossipLog{to, suspect}, "", 0)
}

// Write implements io.Writer. log.Logger calls it once for each line.
func (g gossipLog) Write(line []byte) (int, error) {
	level, text, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" memberlist: "))
	if !ok {
		level, text = nil, level
	}
	if rest, ok := strings.CutPrefix(string(text), "Suspect "); ok {
		if name, _, ok := strings.Cut(rest, " has failed"); ok {
			g.suspect(name)
		}
	}
	switch string(level) {
	case "[ERR]":
		// memberlist logs each failed packet or stream as an error, but such failures are normal in a network.
		g.log.Debug("gossip trouble", "text", string(text))
	case "[WARN]":
		g.log.Debug("gossip warning", "text", string(text))
	default:
		g.log.Trace("gossip", "text", string(text))
	}
	return len(line), nil
}
