package fsm

import "github.com/outspan/outspan/model"

// rules is the drawer of what limits decisions: settings, classes, and how much of each rate is spent. It only stores
// values. Commands replace Settings and Classes as a whole. Only putActor, delActor and putRail write the tables.
type rules struct {
	Settings      model.Settings
	SettingsIndex uint64
	Classes       []Class // the most important first

	Actors Table[model.StopOrigin, *ActorLedger]
	Rails  Table[RailName, *Rail]
}

func (s *rules) fork(undo *undoLog) {
	s.Actors, s.Rails = s.Actors.fork(undo), s.Rails.fork(undo)
}

func (s *rules) putActor(l *ActorLedger) { s.Actors.put(l.Actor, l) }

func (s *rules) delActor(k model.StopOrigin) { s.Actors.del(k) }

func (s *rules) putRail(r *Rail) { s.Rails.put(r.Name, r) }
