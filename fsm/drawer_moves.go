package fsm

import "github.com/outspan/outspan/model"

// moves is the drawer of data: volumes, their transfers and backups, and the index of copies. It only stores rows. Each
// table is written only by its put and del methods.
type moves struct {
	Volumes   Table[model.VolumeID, *Volume]
	Transfers Table[model.TransferID, *Transfer]
	Backups   Table[model.BackupID, *Backup]

	copiesOn Table[string, model.VolumeID] // by copyKey; only replicated volumes
}

func (s *moves) fork(undo *undoLog) {
	s.Volumes, s.Transfers = s.Volumes.fork(undo), s.Transfers.fork(undo)
	s.Backups, s.copiesOn = s.Backups.fork(undo), s.copiesOn.fork(undo)
}

func (s *moves) putVolume(v *Volume) {
	before, _ := s.Volumes.put(v.ID, v)
	s.indexVolume(before, v)
}

func (s *moves) delVolume(id model.VolumeID) {
	before, _ := s.Volumes.del(id)
	s.indexVolume(before, nil)
}

// indexVolume updates the index of copies after a row was replaced. before and after may be nil.
func (s *moves) indexVolume(before, after *Volume) {
	was, is := before.replicated(), after.replicated()
	if was && is && before.Home == after.Home {
		return
	}
	if was {
		s.copiesOn.del(copyKey(before))
	}
	if is {
		s.copiesOn.put(copyKey(after), after.ID)
	}
}

func (s *moves) putTransfer(t *Transfer) { s.Transfers.put(t.ID, t) }

func (s *moves) delTransfer(id model.TransferID) { s.Transfers.del(id) }

func (s *moves) putBackup(b *Backup) { s.Backups.put(b.ID, b) }

func (s *moves) delBackup(id model.BackupID) { s.Backups.del(id) }

// index builds the index of copies after the rows were read from a snapshot.
func (s *moves) index() {
	for _, v := range s.Volumes.All() {
		s.indexVolume(nil, v)
	}
}

func (v *Volume) replicated() bool { return v != nil && v.Kind == model.VolumeReplicated }

func copyKey(v *Volume) string { return string(v.Home) + "/" + string(v.ID) }

// attaching returns the running transfer that puts a restored copy to use, or false if there is none. made is the id of
// the transfer that restored the copy.
func (s *moves) attaching(made model.TransferID) (*Transfer, bool) {
	for _, t := range s.Transfers.All() {
		if t.Options.Copy == made && !t.Phase.Ended() {
			return t, true
		}
	}
	return nil, false
}
