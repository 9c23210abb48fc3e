package agent

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

const registerTimeout = 10 * time.Second // of one attempt

// again bounds how often the agent registers: each time is an entry in the servers' log.
const again = time.Second

// session is the present registration, for everyone who needs its epoch. Safe for many goroutines.
type session struct {
	mu      sync.Mutex
	reply   transport.RegisterReply // Epoch 0: not registered
	changed chan struct{}           // closed and replaced at each registration
	due     chan struct{}           // capacity 1: register (again)
	labels  map[string]string
}

func newSession(labels map[string]string) *session {
	return &session{changed: make(chan struct{}), due: make(chan struct{}, 1), labels: labels}
}

// epoch returns the present epoch, and a channel that is closed at the next registration.
func (s *session) epoch() (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reply.Epoch, s.changed
}

// set begins an epoch. Wishes to register that came before are fulfilled by it, unless the labels moved meanwhile.
func (s *session) set(r transport.RegisterReply, sent map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = r
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

// lost says that the servers don't take this epoch any more. One that is over already is no news.
func (s *session) lost(epoch uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch == s.reply.Epoch {
		s.renew()
	}
}

func (s *session) renew() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// keepRegistered registers whenever that is due, until ctx ends.
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
			if now, _ := a.session.epoch(); epoch != now {
				continue // each server says it: the first was enough
			}
			a.log.Warn("a server gave this node up as offline, registering again")
		case <-ctx.Done():
			return
		}
		a.shop.reports.suspend()
		if !a.register(ctx) || !sleep(ctx, again, nil) {
			return
		}
	}
}

// register tries until a server has committed the registration. It returns false when ctx ended.
func (a *Agent) register(ctx context.Context) bool {
	retry := backoff{first: 100 * time.Millisecond, most: 10 * time.Second}
	for {
		request := a.registration()
		reply, err := a.registerOnce(ctx, request)
		if err == nil {
			a.registered(reply, request.Shape.Labels)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		a.setProblem("registration", err.Error())
		a.log.Log(retry.level(), "registration failed", "error", err)
		pause := retry.next(rand.Float64())
		var refused *fsm.Error
		if errors.As(err, &refused) && (refused.Code == fsm.CodeNameTaken || refused.Code == fsm.CodeConflict || refused.Code == fsm.CodeForbidden) {
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
		err = fsm.Refuse(fsm.CodeInternal, "the servers answered a registration without an epoch")
	}
	if err == nil {
		err = a.home.pin(reply.Cluster)
	}
	return reply, err
}

func (a *Agent) registration() transport.RegisterRequest {
	node := a.cfg.Node
	a.session.mu.Lock()
	node.Labels = a.session.labels
	a.session.mu.Unlock()
	return transport.RegisterRequest{
		Node: a.home.node, Name: a.cfg.Name,
		Agent: fsm.AgentInfo{
			BootID: a.identity.BootID, Incarnation: a.identity.Incarnation, Address: node.Address, APIAddress: node.APIAddress,
			Version: a.cfg.Version, Warnings: a.warnings(),
		},
		Shape: a.shape(node), Cluster: a.home.cluster(),
	}
}

// shape adds what this agent was configured to do for volumes.
func (a *Agent) shape(node NodeConfig) fsm.NodeShape {
	s := shape(node)
	if a.cfg.BackupDir != "" {
		s.Attributes[fsm.AttributeBackup] = a.cfg.BackupDir
	}
	return s
}

// registered begins the new epoch: heartbeats first, since the node's age counts from here.
func (a *Agent) registered(reply transport.RegisterReply, labels map[string]string) {
	a.log.Info("registered", "epoch", reply.Epoch, "heartbeat", reply.Heartbeat)
	a.setProblem("registration", "")
	if err := a.home.keepServers(reply.Servers); err != nil {
		a.log.Error("list of the servers could not be written", "error", err)
	}
	a.every.Store(int64(asDuration(reply.Heartbeat)))
	a.shop.lease.enrol(reply.Epoch) // before servers answer for it
	if a.beats != nil {
		a.beats.Register(reply.Key, reply.Epoch, a.beatEvery())
		a.shop.lease.set(a.beats)
	}
	a.shop.reports.enrol(reply.Epoch)
	a.session.set(reply, labels)
}
