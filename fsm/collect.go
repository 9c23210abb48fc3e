package fsm

import (
	"cmp"
	"slices"

	"github.com/outspan/outspan/model"
)

const (
	keptPerSlot   = 2    // terminal instances whose rows are kept in each slot
	eventsAnEntry = 2000 // old events that one entry may drop, or more if the entry's own events take more bytes
	eventBytes    = 400  // bytes of each event that EventLimit allows, on average; most events take 200
)

// dropOldEvents drops the oldest events while they are too old, too many, or take too many bytes. It is called for each
// entry, so no entry is written only to clean up. The parameter grown is how many bytes of events the entry has added.
// At least as many bytes may be dropped, so an excess over the limit never grows.
func (s *State) dropOldEvents(grown int) {
	for dropped, bytes := 0, s.Events.Bytes(); dropped < eventsAnEntry || bytes-s.Events.Bytes() < grown; dropped++ {
		key, at, ok := s.Events.oldest()
		fits := s.Events.Len() <= s.Settings.EventLimit && s.Events.Bytes() <= s.eventRoom()
		if !ok || fits && at.Add(s.Settings.EventAge) >= s.Now {
			return
		}
		s.delEvent(key)
	}
}

// eventRoom returns how many bytes the events may take.
func (s *rules) eventRoom() int { return min(s.Settings.EventLimit, 1<<40) * eventBytes }

// forgetOld removes the rows of terminal instances in the slot of inst, except for the newest keptPerSlot. It does
// nothing if inst is not terminal.
func (s *State) forgetOld(inst *Instance) {
	if !inst.Terminal() {
		return
	}
	var ended []*Instance
	for other := range s.InstancesInSlot(inst.Group, inst.Slot) {
		if other.Terminal() {
			ended = append(ended, other)
		}
	}
	slices.SortFunc(ended, func(a, b *Instance) int { return cmp.Compare(a.Marks.CreatedIndex, b.Marks.CreatedIndex) })
	for i := 0; i < len(ended)-keptPerSlot; i++ {
		s.setInstance(ended[i], nil)
	}
}

// forgetVersions removes the versions of a job that nothing uses and that are not among the newest keptVersions.
func (s *State) forgetVersions(name model.JobName) {
	job, ok := s.Jobs.Get(name)
	if !ok {
		return
	}
	for _, v := range s.unusedVersions(job, job.Version) {
		s.delVersion(v)
	}
}

// unusedVersions lists the versions of a job that nothing uses, and that are not among the newest keptVersions once the
// job is at version newest.
func (s *State) unusedVersions(job *Job, newest uint64) []*JobVersion {
	used := map[uint64]bool{job.Version: true, job.Stable: true}
	for id, g := range s.groupsOf(job.Name) {
		used[g.Version] = true
		for inst := range s.InstancesOf(id) {
			used[inst.Version] = true
		}
		for c := range s.PullsOf(id) {
			used[c.Version] = true
		}
	}
	var unused []*JobVersion
	for _, v := range s.Versions.From(versionKey(job.Name, 0)) {
		if v.Job != job.Name || v.Version+keptVersions > newest {
			break
		}
		if !used[v.Version] {
			unused = append(unused, v)
		}
	}
	return unused
}

// forgetJob removes a purged job with its versions, deployments, volumes and services, and ends its transfers. The
// caller must have removed its groups and instances.
func (s *State) forgetJob(name model.JobName) {
	var versions []*JobVersion
	for _, v := range s.Versions.From(versionKey(name, 0)) {
		if v.Job != name {
			break
		}
		versions = append(versions, v)
	}
	for _, v := range versions {
		s.delVersion(v)
	}
	var deployments []model.DeploymentID
	for id, d := range s.Deployments.All() {
		if d.Job == name {
			deployments = append(deployments, id)
		}
	}
	for _, id := range deployments {
		s.delDeployment(id)
	}
	s.endTransfersOfJob(name)
	s.dropVolumes(func(v *Volume) bool { return jobOf(v.Group) == name })
	s.dropServices(name, func(model.ServiceName) bool { return true })
	s.delJob(name)
	s.touchJob(name)
	s.emit(Event{Type: model.EventJob, Subject: "job/" + string(name), Before: "stopped", After: "purged"})
}

// overdueTokens lists the join tokens that ended more than tokenKept ago. Creating a token drops them.
func (s *trust) overdueTokens(now model.Time) []model.TokenID {
	var overdue []model.TokenID
	for id, t := range s.JoinTokens.All() {
		if t.overdue(now) {
			overdue = append(overdue, id)
		}
	}
	return overdue
}
