package httpapi

import (
	"crypto/rand"
	"maps"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

type migrateInput struct {
	WriteParams
	VolumePath
	Input api.MigrateBody
}

type backupInput struct {
	WriteParams
	VolumePath
	Input api.BackupBody
}

type attachInput struct {
	WriteParams
	VolumePath
	Input api.AttachBody
}

type restoreInput struct {
	WriteParams
	BackupPath
	Input api.RestoreBody
}

type transferWrite struct {
	WriteParams
	TransferPath
}

type backupWrite struct {
	WriteParams
	BackupPath
}

func (in *migrateInput) body() any { return &in.Input }
func (in *backupInput) body() any  { return &in.Input }
func (in *attachInput) body() any  { return &in.Input }
func (in *restoreInput) body() any { return &in.Input }

func (s *Server) volumeWrites() []operation {
	rt := func(id, path, summary string) route {
		return route{id: id, path: path, tag: "volumes", summary: summary}
	}
	return []operation{
		write(s,
			rt("migrate-volume", "/v1/volumes/{id}/migrate", "Move the volumes of a slot to another node, with their instance"),
			starting(prepareMigrate)),
		write(s,
			rt("backup-volume", "/v1/volumes/{id}/backup", "Write the volumes of a slot to the backup directory of their node"),
			starting(prepareBackup)),
		write(s, rt("attach-volume", "/v1/volumes/{id}/attach", "Put a restored volume, or an old copy that is kept, to use"),
			starting(prepareAttach)),
		write(s, rt("restore-backup", "/v1/backups/{id}/restore", "Make a new volume of a backup"), starting(prepareRestore)),
		write(s, rt("forget-backup", "/v1/backups/{id}/forget", "Remove the record of a backup; its archive stays"),
			change[backupWrite, api.TransferReply]{
				prepare: func(r *reading, in *backupWrite) ([]fsm.Command, error) {
					b, refusal := r.NamedBackup(in.ID)
					if refusal != nil {
						return nil, refusal
					}
					return []fsm.Command{&fsm.BackupForget{ID: b.ID}}, nil
				},
				answer: func(o *outcome, _ *backupWrite) (api.TransferReply, error) {
					return api.TransferReply{Written: o.Written}, nil
				},
			}),
		write(s, rt("cancel-transfer", "/v1/transfers/{id}/cancel", "Give up work on volumes, or remove what it left"),
			change[transferWrite, api.TransferReply]{
				prepare: func(r *reading, in *transferWrite) ([]fsm.Command, error) {
					t, refusal := r.NamedTransfer(in.ID)
					if refusal != nil {
						return nil, refusal
					}
					return []fsm.Command{&fsm.TransferCancel{ID: t.ID}}, nil
				},
				answer: func(o *outcome, in *transferWrite) (api.TransferReply, error) {
					t, refusal := o.NamedTransfer(in.ID)
					if refusal != nil {
						return api.TransferReply{Written: o.Written}, nil // the transfer left nothing, and its row is gone
					}
					return o.transferReply(t), nil
				},
			}),
	}
}

// starting returns the functions of a write that begins a transfer. The answer finds the transfer by its new id. For a
// repeated request, it finds the transfer by the index of the entry.
func starting[I any](prepare func(*reading, *I) (*fsm.TransferStart, error)) change[I, api.TransferReply] {
	return change[I, api.TransferReply]{
		prepare: func(r *reading, in *I) ([]fsm.Command, error) {
			c, err := prepare(r, in)
			if err != nil {
				return nil, err
			}
			c.ID, c.Token = model.TransferID(ulid.Make().String()), rand.Text()
			return []fsm.Command{c}, nil
		},
		answer: func(o *outcome, _ *I) (api.TransferReply, error) {
			for _, c := range o.commands {
				if start, ok := c.(*fsm.TransferStart); ok {
					if t, ok := o.Transfers.Get(start.ID); ok {
						return o.transferReply(t), nil
					}
				}
			}
			for _, t := range o.Transfers.All() {
				if t.Marks.Index == o.Written.Index && o.Sees("transfer/"+string(t.ID)) {
					return o.transferReply(t), nil
				}
			}
			return api.TransferReply{Written: o.Written}, nil // the transfer ended long ago, and its row is gone
		},
	}
}

func (o *outcome) transferReply(t *fsm.Transfer) api.TransferReply {
	v := o.transfer(t)
	return api.TransferReply{Written: o.Written, Transfer: &v}
}

func prepareMigrate(r *reading, in *migrateInput) (*fsm.TransferStart, error) {
	v, refusal := r.NamedVolume(in.ID)
	if refusal != nil {
		return nil, refusal
	}
	n, err := r.target(in.Input.To, "to")
	if err != nil {
		return nil, err
	}
	return &fsm.TransferStart{Work: model.TransferMigrate, Volume: v.ID, To: n,
		Options: fsm.TransferOptions{Cooling: keepFor(in.Input.Keep)}}, nil
}

func (r *reading) target(node, key string) (model.NodeID, error) {
	if node == "" {
		return "", model.Refuse(model.CodeInvalid, "no node is given").WithHint("name one with %s", key)
	}
	n, refusal := r.NamedNode(node)
	if refusal != nil {
		return "", refusal
	}
	return n.ID, nil
}

// keepFor returns how long the old copy is kept. d is what the caller asked for, or nil if the caller named no time.
// The result 0 means as long as the setting volume_cooling says.
func keepFor(d *model.Duration) model.Duration {
	if d == nil {
		return 0
	}
	return max(*d, 1) // 1 ms for a caller that gave 0: the copy is removed as soon as the move has succeeded
}

func prepareBackup(r *reading, in *backupInput) (*fsm.TransferStart, error) {
	v, refusal := r.NamedVolume(in.ID)
	if refusal != nil {
		return nil, refusal
	}
	return &fsm.TransferStart{Work: model.TransferBackup, Volume: v.ID, Options: fsm.TransferOptions{Live: in.Input.Live}},
		nil
}

func prepareAttach(r *reading, in *attachInput) (*fsm.TransferStart, error) {
	if in.Input.Node != "" || len(in.Input.Copies) > 0 {
		return prepareFound(r, in)
	}
	id := model.VolumeID(in.ID)
	if _, old := r.OldCopy(id); !old || !r.Sees("volume/"+string(id)) {
		v, refusal := r.NamedVolume(in.ID)
		if refusal != nil {
			return nil, refusal
		}
		id = v.ID
	}
	return &fsm.TransferStart{Work: model.TransferAttach, Volume: id,
		Options: fsm.TransferOptions{Cooling: keepFor(in.Input.Keep)}}, nil
}

// prepareFound makes the command that attaches data that was found on a node and that the state does not know.
func prepareFound(r *reading, in *attachInput) (*fsm.TransferStart, error) {
	n, err := r.target(in.Input.Node, "node")
	if err != nil {
		return nil, err
	}
	if len(in.Input.Copies) == 0 {
		return nil, model.Refuse(model.CodeInvalid, "it is not said which data of node %s is meant", in.Input.Node).
			WithHint("list what is there with: outspan volume find")
	}
	c := &fsm.TransferStart{Work: model.TransferAttach, Volume: model.VolumeID(in.ID), To: n,
		Options: fsm.TransferOptions{Cooling: keepFor(in.Input.Keep)}}
	for _, name := range slices.Sorted(maps.Keys(in.Input.Copies)) {
		c.Found = append(c.Found, model.VolumeEpoch{Name: name, Epoch: in.Input.Copies[name]})
	}
	return c, nil
}

func prepareRestore(r *reading, in *restoreInput) (*fsm.TransferStart, error) {
	b, refusal := r.NamedBackup(in.ID)
	if refusal != nil {
		return nil, refusal
	}
	n, err := r.target(in.Input.Node, "node")
	if err != nil {
		return nil, err
	}
	return &fsm.TransferStart{
		Work: model.TransferRestore, Volume: in.Input.Volume, To: n, Backup: b.ID,
		Options: fsm.TransferOptions{Attach: in.Input.Attach, Cooling: keepFor(in.Input.Keep)},
	}, nil
}
