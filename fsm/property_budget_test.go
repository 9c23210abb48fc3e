package fsm

import "github.com/outspan/outspan/model"

// stopRecord lists the accepted stops that one rate limits. The test records them independently of the state's ledgers.
type stopRecord struct {
	index uint64 // log index of the last change of the budget's spec or the settings; a change discards the record
	stops []model.Time
}

// ledgersHold checks an accepted stop or placement that is the only command of its entry. After a stop, every shared
// budget must still have enough ready instances, and no rate may be exceeded. A placement must not exceed the quota of
// its class. The test counts the instances itself.
func (h *randomLog) ledgersHold(before, after State, e Entry, results []Result) {
	if len(e.Groups) != 1 || len(e.Groups[0]) != 1 || results[0].Refusal != nil || results[0].Replay {
		return
	}
	switch c := e.Groups[0][0].(type) {
	case *InstanceStop:
		if i, ok := before.Instances.Get(c.ID); ok {
			h.stopHolds(&before, &after, i, c)
		}
	case *InstancePlace:
		h.quotaHolds(&before, &after, c)
	}
}

func (h *randomLog) stopHolds(before, after *State, i *Instance, c *InstanceStop) {
	asked := !c.Bypass && c.Cause != model.CauseJobStopped && c.Cause != model.CauseNodeDisabled
	switch i.Status.Observed {
	case model.ObservedLost, model.ObservedFailed, model.ObservedPending:
		return
	}
	for _, b := range before.SharedBudgets(i.Group) {
		ready, want := 0, 0
		for _, id := range b.Groups {
			g, _ := before.Groups.Get(id)
			want += g.Want()
			for member := range before.InstancesOf(id) {
				ready += count(member.Ready())
			}
		}
		if need := model.ResolveBudget(&b.Spec, everything(), want).MinReady; asked && i.Ready() && ready-1 < need {
			h.t.Fatalf("a stop for %s left %d ready under the budget %s, which must keep %d of %d", c.Cause,
				ready-1, b.Name, need, want)
		}
		if b.Spec.Rate != nil && c.Cause.Voluntary() {
			h.rateHolds("budget "+string(b.Name), b.Index, b.Spec.Rate.Max, b.Spec.Rate.Window, after.Now, asked)
		}
	}
	if k := c.Cause.StoppedBy(); k != "" {
		if rate := before.Settings.ActorRate(k); rate.Max > 0 {
			h.rateHolds("actor "+string(k), before.SettingsIndex, rate.Max, rate.Window, after.Now, asked)
		}
	}
}

// rateHolds records a stop. If asked is true and the rate does not allow the stop, the test fails.
func (h *randomLog) rateHolds(of string, index uint64, most int, window model.Duration, now model.Time, asked bool) {
	if h.records == nil {
		h.records = map[string]*stopRecord{}
	}
	r := h.records[of]
	if r == nil || r.index != index {
		r = &stopRecord{index: index}
		h.records[of] = r
	}
	if used := usedOf(r.stops, window, now); asked && used >= most {
		h.t.Fatalf("%s: a stop was accepted after %d within %s; %d are allowed", of, used, window, most)
	}
	r.stops = append(r.stops, now)
}

func (h *randomLog) quotaHolds(before, after *State, c *InstancePlace) {
	job, ok := before.Jobs.Get(jobOf(c.Group))
	if !ok {
		return
	}
	class, _, _ := before.Class(job.Class)
	was, is := recount(before, class.Name), recount(after, class.Name)
	if q := class.Quota; q.Instances > 0 && is.Instances > q.Instances && is.Instances > was.Instances ||
		q.MemoryBytes > 0 && is.MemoryBytes > q.MemoryBytes && is.MemoryBytes > was.MemoryBytes {
		h.t.Fatalf("a placement brought class %s from %+v to %+v; its quota is %+v", class.Name, was, is, q)
	}
}

// recount returns the number and the memory of a class's instances. It skips instances that are stopped or lost, and
// failed instances that are not desired to run.
func recount(s *State, class model.ClassName) Usage {
	var u Usage
	for _, i := range s.Instances.All() {
		job, ok := s.Jobs.Get(jobOf(i.Group))
		gone := i.Status.Observed == model.ObservedStopped || i.Status.Observed == model.ObservedLost ||
			i.Status.Observed == model.ObservedFailed && i.Desired != model.DesiredRunning
		if ok && job.Class == class && !gone {
			u.Instances++
			u.MemoryBytes += i.Claims.Resources.MemoryBytes
		}
	}
	return u
}
