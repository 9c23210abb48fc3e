package fsm

import "github.com/outspan/outspan/model"

// moves is the drawer of data: volumes, their transfers and backups, and the index of copies. It only stores rows. Its
// methods put and del of each table are its only writers.
type moves struct {
	Volumes   Table[model.VolumeID, *Volume]
	Transfers Table[model.TransferID, *Transfer]
	Backups   Table[model.BackupID, *Backup]

	copiesOn Table[string, model.VolumeID] // node/volume, of replicated volumes
}

func (s *moves) fork(undo *undoLog) {
	s.Volumes, s.Transfers = s.Volumes.fork(undo), s.Transfers.fork(undo)
	s.Backups, s.copiesOn = s.Backups.fork(undo), s.copiesOn.fork(undo)
}
