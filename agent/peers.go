package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// How long the start of a program waits for the list of its group's instances: peersFirst if an older list is on disk,
// peersMissing if no list is.
const (
	peersFirst   = time.Second
	peersMissing = 5 * time.Second
)

// peers keeps two files for each group that has an instance here: a text file for shells, which OUTSPAN_PEERS names,
// and a JSON file. They list all instances of the group, ready or not. They stay unchanged while no server answers, and
// when the agent restarts. They are removed when the group has no instance here any more. Safe for concurrent use.
type peers struct {
	node    model.NodeID
	dir     string
	log     hclog.Logger
	changed func(model.GroupID) // called when a group's instances, their addresses or ports changed; it must not block
	kick    chan struct{}       // capacity 1; has a token when the set of groups changed

	mu          sync.Mutex // never held during disk access, so that instances don't wait for the disk
	groups      map[model.GroupID]*groupPeers
	gone        map[model.GroupID]bool // groups whose files must be removed
	incarnation uint64                 // of the state that the known lists come from; indexes may repeat after a restore
}

// groupPeers is what is known of one group.
type groupPeers struct {
	told    chan struct{} // closed once a server has sent this agent the group's instances
	at      uint64        // transport.GroupPeers.At of the last list; 0 requests the whole list
	version int           // how often the set of instances, their addresses or their ports have changed
	members []transport.Peer
}

func newPeers(node model.NodeID, dir string, log hclog.Logger) *peers {
	return &peers{
		node: node, dir: dir, log: log, changed: func(model.GroupID) {}, kick: make(chan struct{}, 1),
		groups: map[model.GroupID]*groupPeers{}, gone: map[model.GroupID]bool{},
	}
}

// path returns the path of a group's text file. The JSON file has the same path with ".json" added. checkAssignment has
// checked that the names do not lead out of the directory.
func (p *peers) path(group model.GroupID) string {
	job, name := group.Split()
	return filepath.Join(p.dir, string(job), name)
}

// follow sets the groups whose files are kept. run removes the files of all other groups. follow does not block.
func (p *peers) follow(groups map[model.GroupID]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	other := false
	for id := range p.groups {
		if !groups[id] {
			delete(p.groups, id)
			p.gone[id], other = true, true
		}
	}
	for id := range groups {
		if _, known := p.groups[id]; !known {
			p.groups[id], other = &groupPeers{told: make(chan struct{})}, true
			delete(p.gone, id)
		}
	}
	if other {
		select {
		case p.kick <- struct{}{}:
		default:
		}
	}
}

// tidy removes the files of groups that have no instance here any more.
func (p *peers) tidy() {
	p.mu.Lock()
	gone := p.gone
	p.gone = map[model.GroupID]bool{}
	p.mu.Unlock()
	for id := range gone {
		path := p.path(id)
		for _, file := range []string{path, path + ".json"} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				p.log.Warn("the list of a group that has no instance here could not be removed", "error", err)
			}
		}
		_ = os.Remove(filepath.Dir(path)) // fails while the directory has files of other groups of the job
	}
}

// version returns a number that grows with each change about which the group's programs are signalled. It returns 0 for
// a group that is not followed.
func (p *peers) version(group model.GroupID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[group]; g != nil {
		return g.version
	}
	return 0
}

// news returns told, a channel that is closed once a server has sent this agent the group's instances, and patience,
// which is how long the start of a program waits for told. If the group is not followed, told is nil and patience is 0.
func (p *peers) news(group model.GroupID) (told <-chan struct{}, patience time.Duration) {
	p.mu.Lock()
	g := p.groups[group]
	p.mu.Unlock()
	if g == nil {
		return nil, 0
	}
	if _, err := os.Stat(p.path(group)); err != nil {
		return g.told, peersMissing
	}
	return g.told, peersFirst
}

// run keeps the files up to date until ctx ends.
func (p *peers) run(ctx context.Context, poll func(context.Context, transport.PeersRequest) (transport.Peers, error)) {
	retry := backoff{first: 100 * time.Millisecond, most: 5 * time.Second}
	for ctx.Err() == nil {
		p.tidy()
		question, some := p.question()
		if !some {
			sleep(ctx, maxWait, p.kick)
			continue
		}
		answer, err := p.ask(ctx, poll, question)
		if err == nil {
			err = p.learn(answer)
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errOtherGroups):
		case err != nil:
			p.log.Log(retry.level(), "the lists of groups are not up to date", "error", err)
			sleep(ctx, retry.next(rand.Float64()), nil)
		default:
			retry.reset()
		}
	}
}

// question returns the next request. some is false if no group is followed.
func (p *peers) question() (q transport.PeersRequest, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q = transport.PeersRequest{Node: p.node, Incarnation: p.incarnation, Wait: model.Duration(pollWait / time.Millisecond)}
	for _, id := range sortedKeys(p.groups) {
		q.Groups = append(q.Groups, transport.PeersKnown{Group: id, At: p.groups[id].at})
	}
	return q, len(q.Groups) > 0
}

var errOtherGroups = errors.New("other groups are followed now")

// ask polls once. It returns errOtherGroups early if the set of groups changes during the poll.
func (p *peers) ask(ctx context.Context, poll func(context.Context, transport.PeersRequest) (transport.Peers, error),
	q transport.PeersRequest) (transport.Peers, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	ctx, give := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-p.kick:
			give(errOtherGroups)
		case <-ctx.Done():
		}
	})
	answer, err := poll(ctx, q)
	other := errors.Is(context.Cause(ctx), errOtherGroups)
	give(nil)
	watch.Wait()
	if err != nil && other {
		err = errOtherGroups
	}
	return answer, err
}

// learn writes the lists in an answer, and calls p.changed for groups that changed. It returns an error if a list can't
// be read or written. That list is requested again.
func (p *peers) learn(a transport.Peers) error {
	p.mu.Lock()
	if p.incarnation != a.Incarnation {
		p.incarnation = a.Incarnation
		for _, g := range p.groups {
			g.at = 0
		}
	}
	p.mu.Unlock()
	var failed error
	for _, raw := range a.Lists {
		var list transport.GroupPeers
		err := transport.DecodeCBOR(raw, &list)
		if err == nil && p.follows(list.Group) {
			err = p.write(list)
		}
		switch {
		case err != nil:
			failed = err
		case p.note(list):
			p.changed(list.Group)
		}
	}
	return failed
}

func (p *peers) follows(group model.GroupID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.groups[group] != nil
}

// note records a list that was written, and reports whether the group's programs must be signalled.
func (p *peers) note(list transport.GroupPeers) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.groups[list.Group]
	if g == nil { // the group's last instance here was removed meanwhile, so tidy must remove the files
		p.gone[list.Group] = true
		return false
	}
	news = g.version == 0 || !slices.EqualFunc(g.members, list.Members, samePlace)
	if news {
		g.version++
	}
	g.at, g.members = list.At, list.Members
	closeOnce(g.told)
	return news
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

func samePlace(a, b transport.Peer) bool {
	return a.Instance == b.Instance && a.Slot == b.Slot && a.Address == b.Address && maps.Equal(a.Ports, b.Ports)
}

// write replaces both files of a group. Readers never see an incomplete file.
func (p *peers) write(list transport.GroupPeers) error {
	path := p.path(list.Group)
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return diskError("make the directory of "+path, err)
	}
	if err := durable.ReplaceBytes(path+".json", append(text, '\n'), 0o644); err != nil {
		return diskError("write "+path+".json", err)
	}
	if err := durable.ReplaceBytes(path, peerLines(list), 0o644); err != nil {
		return diskError("write "+path, err)
	}
	return nil
}

// peerLines formats a list for shells: a line for each instance, with its slot, member id, address, state, node, and
// NAME=NUMBER for each port.
func peerLines(list transport.GroupPeers) []byte {
	var out bytes.Buffer
	for _, m := range list.Members {
		fmt.Fprintf(&out, "%d %s %s %s %s", m.Slot, memberID(list.Group, m.Slot), m.Address, m.State, m.Node)
		for _, name := range sortedKeys(m.Ports) {
			fmt.Fprintf(&out, " %s=%d", name, m.Ports[name])
		}
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// memberID returns the name of a slot's member. A program may use the name in its own cluster, because the name stays
// the same when the slot's instance is replaced.
func memberID(group model.GroupID, slot int) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(string(group), "/", "-"), slot)
}

// followPeers sets the groups whose lists are kept: the groups of all instances here, and of the instances in fresh,
// which are not in c.list yet.
func (c *supervisors) followPeers(fresh []*instance) {
	groups := map[model.GroupID]bool{}
	for _, i := range fresh {
		groups[i.wanted().Group] = true
	}
	for _, m := range c.list() {
		groups[m.wanted().Group] = true
	}
	delete(groups, "") // the group of an instance that neither the journal nor the runtime knows
	c.shared.peers.follow(groups)
}

// peersChanged wakes the instances of a group, so that they signal their programs.
func (c *supervisors) peersChanged(group model.GroupID) {
	for _, m := range c.list() {
		if m.wanted().Group == group {
			m.wake()
		}
	}
}

// awaitPeers waits for the list of the group's instances, so that the program starts with the newest list. It returns
// false if the assignment changed or ctx ended. If no server answers in time, it returns true, and the program starts
// with the last known list, or without a list.
func (i *instance) awaitPeers(ctx context.Context, want transport.Assignment) bool {
	told, patience := i.shared.peers.news(want.Group)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-told:
		return true
	case <-i.changed:
		return false
	case <-ctx.Done():
		return false
	case <-limit.C:
	}
	i.log.Warn("no server tells the instances of the group: going on with what was known last", "file",
		i.shared.peers.path(want.Group))
	return true
}

// tellPeers signals a ready program that the instances of its group have changed, if its job asks for a signal. If the
// signal fails, a later call sends it again.
func (i *instance) tellPeers(ctx context.Context, task Task, want transport.Assignment) {
	if want.Spec == nil || want.Spec.Peers == nil || want.Spec.Peers.Signal == "" ||
		i.entry.Status.Observed != model.ObservedReady {
		return
	}
	now := i.shared.peers.version(want.Group)
	sig, err := driver.ParseSignal(want.Spec.Peers.Signal)
	if now == i.told || err != nil {
		return
	}
	if err := task.Signal(ctx, sig); err != nil {
		i.log.Warn("the program could not be told that its group changed", "error", err)
		return
	}
	i.told = now
}
