package bubble

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// step is one entry, and the states around it.
type step struct {
	before, after fsm.State
	entry         committed
}

// court judges every entry of one history, in order. It knows only what rows say, and adds up by itself what the
// product keeps sums of, so that both would have to be wrong in the same way. It belongs to whoever replays.
type court struct {
	windows map[string]*window // S3: by budget or actor
	rails   []railed           // S7
	retried map[model.GroupID][]model.Time
	ended   map[model.InstanceID]uint64 // S9: since which index
	ids     map[model.RequestID]uint64  // S4: entries that took a request for new
}

func newCourt() *court {
	return &court{windows: map[string]*window{}, retried: map[model.GroupID][]model.Time{}, ended: map[model.InstanceID]uint64{}, ids: map[model.RequestID]uint64{}}
}

// judge returns what is wrong with a step; each finding begins with the id of its invariant.
func (c *court) judge(s step) []error {
	var found []error
	for _, one := range []func(step) error{
		c.rooms, c.holders, c.budgets, c.rates, c.once, c.reasons, c.surges, c.waves, c.railway, c.deleted, c.terms, c.preemptions, c.holds, c.strangers,
	} {
		if err := one(s); err != nil {
			found = append(found, err)
		}
	}
	return append(found, append(checked(fsm.Check(s.after)), checked(checkStep(s))...)...)
}

func checkStep(s step) error {
	if s.before.Index == 0 {
		return nil
	}
	return fsm.CheckStep(s.before, s.after)
}

// checked lists what the product's own checks found. What has no number breaks what the others rest on.
func checked(err error) (all []error) {
	found, _ := errors.AsType[fsm.Findings](err)
	for _, one := range found {
		if one.Invariant == "" {
			one = fsm.Finding{Invariant: fsm.S5, Text: "the state contradicts itself: " + one.Text}
		}
		all = append(all, fsm.Findings{one})
	}
	return all
}

// findings joins what one judge found.
type findings []error

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

func (f findings) err() error { return errors.Join(f...) }

// began lists the instances whose stop began with this entry, as they were before and are now.
func (s step) began(visit func(was, now *fsm.Instance)) {
	for id, now := range s.after.Instances.All() {
		was, ok := s.before.Instances.Get(id)
		if ok && was != now && was.Desired == model.DesiredRunning && now.Desired != model.DesiredRunning {
			visit(was, now)
		}
	}
}

// placed lists the instances that are new.
func (s step) placed(visit func(*fsm.Instance)) {
	if s.before.Instances.Same(s.after.Instances) {
		return
	}
	for id, now := range s.after.Instances.All() {
		if !s.before.Instances.Has(id) {
			visit(now)
		}
	}
}

// runs reports whether an instance has a program, as far as its agent said.
func runs(i *fsm.Instance) bool {
	switch i.Status.Observed {
	case model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		return true
	}
	return false
}

// ran reports whether a program ran that an entry told to stop: not if the same entry found its node offline first.
func ran(was, now *fsm.Instance) bool {
	return runs(was) && now.Status.Observed != model.ObservedLost
}

// bypassed reports whether a stop was told to skip budgets, which its row records.
func bypassed(i *fsm.Instance) bool {
	return strings.HasPrefix(i.Marks.StopReason, "budget bypassed")
}
