package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const registerTimeout = 10 * time.Second // of one attempt

// registerPause is the least pause between registrations, because each one is an entry in the servers' log.
const registerPause = time.Second

// registration identifies one registration with the servers. The zero value means that the agent has not registered.
// count numbers the registrations of this process, so that they differ even if the servers repeat an epoch.
type registration struct{ count, epoch uint64 }

// session has the present registration, and what the next registration reports. Safe for concurrent use.
type session struct {
	mu      sync.Mutex
	now     registration
	seen    model.Seen    // incarnation and index of the newest assignments that were acted on
	changed chan struct{} // closed and replaced at each registration
	due     chan struct{} // capacity 1; has a token when the agent must register
	labels  map[string]string
}

func newSession(labels map[string]string) *session {
	return &session{changed: make(chan struct{}), due: make(chan struct{}, 1), labels: labels}
}

// current returns the present registration, and a channel that is closed when a newer one replaces it.
func (s *session) current() (registration, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

// set stores a new registration. sent are the labels that the registration reported. A pending request to register is
// dropped, unless the labels have changed since sent was read.
func (s *session) set(t registration, sent map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = t
	select {
	case <-s.due:
	default:
	}
	if !maps.Equal(sent, s.labels) {
		s.renew()
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// lost makes the agent register again, because the servers no longer accept t. It does nothing if t is not the present
// registration.
func (s *session) lost(t registration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == s.now {
		s.renew()
	}
}

func (s *session) newest() model.Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *session) saw(newest model.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = newest
}

func (s *session) renew() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// keepRegistered registers the node at the start, when session.due has a token, and when a server has agreed that the
// present epoch is offline. It suspends the reports before each registration. It returns when ctx ends.
func (a *Agent) keepRegistered(ctx context.Context) {
	var givenUp <-chan uint64
	if a.beats != nil {
		givenUp = a.beats.GivenUp()
	}
	a.session.renew()
	for {
		select {
		case <-a.session.due:
		case epoch := <-givenUp:
			if now, _ := a.session.current(); epoch != now.epoch {
				continue // several servers may report one epoch; the agent has registered since the first report
			}
			a.log.Warn("a server gave this node up as offline, registering again")
		case <-ctx.Done():
			return
		}
		a.shared.reports.suspend()
		if !a.register(ctx) || !sleep(ctx, registerPause, nil) {
			return
		}
	}
}

// register tries until a server has committed the registration, and then returns true. It returns false if ctx ends.
func (a *Agent) register(ctx context.Context) bool {
	retry := backoff{first: 100 * time.Millisecond, most: 10 * time.Second}
	var logged string // the hint of the last refusal that was logged
	for {
		request := a.registration()
		reply, err := a.registerOnce(ctx, request)
		a.shared.acceptance.Store(int32(acceptance(a.shared.acceptance.Load()).after(err)))
		if err := a.home.noteAnswer(err); err != nil {
			a.log.Error("the answer to a registration could not be noted", "error", err)
		}
		if err == nil {
			a.registered(reply, request.Shape.Labels)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		a.setProblem("registration", err.Error())
		level := retry.level()
		var refused *model.Error
		if errors.As(err, &refused) && refused.Hint != logged {
			level, logged = hclog.Warn, refused.Hint // the reason has changed
		}
		a.log.Log(level, "registration failed", "error", err)
		pause := retry.next(rand.Float64())
		if refused != nil && (refused.Code == model.CodeNameTaken || refused.Code == model.CodeNodeTaken ||
			refused.Code == model.CodeConflict || refused.Code == model.CodeForbidden) {
			pause = max(pause, 2*time.Second) // a person has to act
		}
		if !sleep(ctx, pause, nil) {
			return false
		}
	}
}

func (a *Agent) registerOnce(ctx context.Context, request transport.RegisterRequest) (transport.RegisterReply, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	reply, err := a.cfg.Servers.Register(ctx, request)
	if err == nil && reply.Epoch == 0 {
		err = model.Refuse(model.CodeInternal, "the servers answered a registration without an epoch")
	}
	if err == nil {
		err = a.home.followCluster(reply.Cluster)
	}
	return reply, err
}

func (a *Agent) registration() transport.RegisterRequest {
	node := a.cfg.Node
	a.session.mu.Lock()
	node.Labels = a.session.labels
	seen := a.session.seen
	a.session.mu.Unlock()
	return transport.RegisterRequest{
		Node: a.home.node, Name: a.cfg.Name,
		Agent: model.AgentInfo{
			BootID: a.identity.BootID, Incarnation: a.identity.Incarnation, Address: node.Address, APIAddress: node.APIAddress,
			Version: a.cfg.Version, Warnings: a.warnings(), Format: model.CurrentFormat,
			Machine: machineID(), Born: a.home.born(),
		},
		Shape: a.shape(node), Cluster: a.home.cluster(), Seen: seen, Refused: a.home.refused(),
	}
}

// shape returns the node's shape, with the backup directory among its attributes.
func (a *Agent) shape(node NodeConfig) model.NodeShape {
	s := shape(node)
	if a.cfg.BackupDir != "" {
		s.Attributes[model.AttributeBackup] = a.cfg.BackupDir
	}
	return s
}

// registered makes all parts of the agent use the new registration. It starts the heartbeats before the reports,
// because the servers count the age of the node's last heartbeat from the registration on.
func (a *Agent) registered(reply transport.RegisterReply, labels map[string]string) {
	a.log.Info("registered", "epoch", reply.Epoch, "heartbeat", reply.Heartbeat)
	a.setProblem("registration", "")
	a.forward.ports.learn(reply.Listens)
	if err := a.home.keepServers(reply.Servers); err != nil {
		a.log.Error("list of the servers could not be written", "error", err)
	}
	a.every.Store(int64(asDuration(reply.Heartbeat)))
	last, _ := a.session.current()
	now := registration{last.count + 1, reply.Epoch}
	a.shared.lease.newRegistration(now) // before servers answer heartbeats of this registration
	if a.beats != nil {
		a.beats.SetVoters(reply.Cluster, reply.Config, reply.Voters)
		a.beats.Register(reply.Key, reply.Epoch, a.beatEvery())
		a.shared.lease.set(a.beats)
	}
	a.shared.reports.newRegistration(now)
	a.session.set(now, labels)
}
