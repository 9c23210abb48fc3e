package trust

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// rotateLook is the time between two looks at the members during a rotation.
const rotateLook = time.Second

// caRotation replaces the CA of the cluster. The rows of the CAs say how far a rotation has come, so it has no state of
// its own. On the leader, Engine.Lead runs its steps, and the API begins a rotation with Engine.RotateCA. Any server
// shows the progress with Engine.CAStatus. It is safe for concurrent use: the versions of the rows refuse a step that
// was taken already.
type caRotation struct {
	server, cluster string // names
	store           Store
	servers         Cluster
	keyring         *serverKeyring
	members         memberList
	log             hclog.Logger
}

// run does the leader's work of a rotation of the CA, until ctx ends. It goes by the state alone, so the next
// leader continues where this one stopped.
func (r *caRotation) run(ctx context.Context) {
	retry := backoff{first: time.Second, last: time.Minute}
	for ctx.Err() == nil {
		woken, cancel := r.store.WatchTopic("keys")
		wait, err := r.turn(ctx)
		if err != nil {
			wait = retry.after()
			r.log.Error("the rotation of the CA waits", "retry_in", wait, "error", err)
		} else {
			retry.reset()
		}
		timer := time.NewTimer(wait)
		select {
		case <-woken:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		cancel()
	}
}

// turn takes the next step if no member is waited for, and returns when to look again. The version of each row
// in the step refuses the step of a leader with an older state.
func (r *caRotation) turn(ctx context.Context) (wait time.Duration, err error) {
	state := r.store.Current()
	p := r.progress(state)
	var step []fsm.Command
	switch {
	case p.step == "" || p.step == api.CAForget:
		return lookAgain, nil
	case p.step == api.CAGrace, len(p.waiting) > 0 && !(p.step == api.CARenew && plant.Is(plant.EarlyDrop)):
		return rotateLook, nil
	case p.step == api.CADistribute:
		step, err = r.activate(state, p)
	default:
		for _, row := range p.old {
			step = append(step, &fsm.KeyDrop{Name: row.Name})
		}
	}
	if err != nil {
		return 0, err
	}
	submit, cancel := context.WithTimeout(ctx, foundTime)
	defer cancel()
	if err := r.servers.Submit(submit, step); err != nil {
		return 0, err
	}
	r.log.Info("the rotation of the CA goes on", "ca", p.next.Name, "done", p.step)
	return rotateLook, nil
}

// activate returns the group that makes the incoming CA sign, and retires the one before. Codes: those of resealed.
func (r *caRotation) activate(state *fsm.State, p caProgress) (group []fsm.Command, err error) {
	ring, err := r.keyring.get()
	if err != nil {
		return nil, err
	}
	for _, row := range p.old {
		if row.Phase == model.KeyActive {
			retire, err := resealed(ring, state, row, model.KeyRetired)
			if err != nil {
				return nil, err
			}
			group = append(group, retire)
		}
	}
	activate, err := resealed(ring, state, p.next, model.KeyActive)
	if err != nil {
		return nil, err
	}
	return append(group, activate), nil
}

// RotateCA returns the commands that begin to replace the CA or, during a rotation, that leave members behind. During a
// rotation without q.Force there are none: it goes on by itself. Only the leader calls it. Codes: invalid; busy without
// a CA; not_found for a name that no member has; conflict if too few servers would be left, if a grace comes too late,
// or if this server's clock is wrong; those of the keyring.
func (e *Engine) RotateCA(state *fsm.State, q api.RotateCABody) ([]fsm.Command, error) {
	return e.ca.begin(state, q)
}

func (r *caRotation) begin(state *fsm.State, q api.RotateCABody) ([]fsm.Command, error) {
	if len(q.Names) > 0 && !q.Force {
		return nil, model.Refuse(model.CodeInvalid, "names without force").
			WithHint("to leave members behind, say force; otherwise give no names")
	}
	ring, err := r.keyring.get()
	if err != nil {
		return nil, err
	}
	if _, err := authority(ring, state); err != nil {
		return nil, err
	}
	p := r.progress(state)
	running := p.step != "" && p.step != api.CAForget
	if running && q.Grace != nil {
		return nil, model.Refuse(model.CodeConflict, "a rotation of the CA is in progress, and its grace is %s",
			p.next.Grace).WithHint("go on without a grace; see: outspan ca status")
	}
	var passed []string
	if running {
		passed = p.next.Passed
	}
	if q.Force {
		if passed, err = r.leftBehind(state, p, passed, q.Names, running); err != nil {
			return nil, err
		}
	}
	var put *fsm.KeyPut
	switch {
	case !running:
		if err := r.clockRight(state); err != nil {
			return nil, err
		}
		put, err = newCA(ring, state, r.cluster)
	case q.Force && !slices.Equal(passed, p.next.Passed):
		put, err = resealed(ring, state, p.next, p.next.Phase)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	put.Passed = passed
	if q.Grace != nil {
		put.Grace = *q.Grace
	}
	return []fsm.Command{put}, nil
}

// maxClockError is how far the clock of a server that makes a CA may be off. Other servers refuse a CA that is not
// valid yet; transport.NewAuthority makes one that is valid since a day.
const maxClockError = time.Hour

// clockRight refuses to make a CA by a clock that is far from the median of the servers' clocks, which the state has.
// Code: conflict.
func (r *caRotation) clockRight(state *fsm.State) error {
	if state.Wall == 0 { // no entry has told the time yet
		return nil
	}
	ahead := time.Duration(time.Now().UnixMilli()-state.WallAt(r.servers.Now())) * time.Millisecond
	if ahead.Abs() <= maxClockError {
		return nil
	}
	return model.Refuse(model.CodeConflict, "the clock of the server %s differs by %s from the time of the cluster, so a "+
		"CA that it makes may not be valid for the others", r.server, ahead.Abs().Round(time.Second)).
		WithHint("set the clock of that machine, wait a minute, and try again")
}

// newCA makes a CA, and returns its row. Codes: those of transport.NewAuthority and sealed.
func newCA(ring *keyring.Ring, state *fsm.State, cluster string) (*fsm.KeyPut, error) {
	ca, err := transport.NewAuthority(cluster, 0)
	if err != nil {
		return nil, err
	}
	key, err := ca.KeyDER()
	if err != nil {
		return nil, err
	}
	all := state.KeysOf(model.KeyCA)
	_, last, _ := all[len(all)-1].Name.Split()
	return sealed(ring, state, key, fsm.KeyPut{Name: model.NewKeyName(model.KeyCA, last+1), Version: 1,
		Phase: model.KeyIncoming, Public: ca.Root().Raw})
}

// leftBehind adds to the members that a rotation leaves behind: those with the names or, without names, those that the
// rotation waits for and that are absent. A majority of the servers must stay. Codes: not_found, conflict.
func (r *caRotation) leftBehind(state *fsm.State, p caProgress, passed, names []string,
	running bool) ([]string, error) {
	waiting := p.waiting
	if !running || len(names) > 0 {
		waiting = r.members.counted(state)
	}
	left := slices.Clone(passed)
	for _, name := range names {
		n := len(left)
		for _, m := range waiting {
			if m.named(name) {
				left = append(left, m.who.String())
			}
		}
		if len(left) == n {
			return nil, model.Refuse(model.CodeNotFound, "no rotation waits for %q", model.ClipText(name, 100)).
				WithHint("see who is waited for: outspan ca status")
		}
	}
	for _, m := range waiting {
		if len(names) == 0 && m.absent {
			left = append(left, m.who.String())
		}
	}
	slices.Sort(left)
	left = slices.Compact(left)
	servers, gone := 0, 0
	for _, m := range r.members.counted(state) {
		if m.who.Kind == model.SubjectServer {
			servers++
			if m.in(left) {
				gone++
			}
		}
	}
	if servers > 0 && servers-gone <= servers/2 {
		return nil, model.Refuse(model.CodeConflict, "%d of %d servers would be left behind (%s), and the others are no "+
			"majority", gone, servers, strings.Join(left, ", ")).
			WithHint("start those servers, or remove them from the cluster: outspan server remove NAME")
	}
	return left, nil
}
