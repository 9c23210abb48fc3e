package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (r *reading) volume(v *fsm.Volume) api.Volume {
	job, group := v.Group.Split()
	out := api.Volume{
		ID: v.ID, Job: job, Group: group, Slot: v.Slot, Name: v.Name, Kind: v.Kind, Node: r.nodeName(v.Home),
		NodeID: v.Home, State: api.VolumeInUse,
		Transfer: v.Transfer, OldCopies: []api.OldCopy{},
	}
	if v.Lost != nil {
		out.Lost = &api.VolumeLoss{Node: v.Lost.Node, Actor: v.Lost.Actor, At: wallTime(v.Lost.Wall), Index: v.Lost.Index}
	}
	for _, a := range v.Aside {
		out.Aside = append(out.Aside, api.AsideData{Node: r.nodeName(a.Node), Epoch: a.Epoch, At: wallTime(a.Wall)})
	}
	home, ok := r.Nodes.Get(v.Home)
	switch {
	case v.Transfer != "":
		out.State = api.VolumeMoving
	case v.Home == "":
		out.State = api.VolumeLost
	case !ok || home.Health == model.HealthOffline:
		out.State = api.VolumeHomeOffline
	case v.Copy != "":
		out.State = api.VolumeDetached
	}
	if v.Copy != "" {
		return out
	}
	for i := range r.InstancesInSlot(v.Group, v.Slot) {
		if i.Node == v.Home && i.Status.Observed != model.ObservedStopped {
			out.Instance = i.ID
		}
	}
	if out.State == api.VolumeInUse && out.Instance == "" && !r.wantsSlot(v.Group, v.Slot) {
		out.State = api.VolumeUnused
	}
	for _, t := range r.Transfers.All() {
		if old := r.oldCopy(t); old != nil && r.concerns(t, v) {
			out.OldCopies = append(out.OldCopies, *old)
		}
	}
	return out
}

// wantsSlot reports whether a group should have an instance in a slot.
func (r *reading) wantsSlot(group model.GroupID, slot int) bool {
	name, _ := group.Split()
	job, ok := r.Jobs.Get(name)
	g, known := r.Groups.Get(group)
	policy, has := r.Policy(group)
	return ok && known && has && !job.Stopped && !g.Removed && slot < policy.Count
}

func (r *reading) concerns(t *fsm.Transfer, v *fsm.Volume) bool {
	if t.Group != v.Group || t.Slot != v.Slot {
		return false
	}
	for _, name := range t.Names {
		if name == v.Name {
			return true
		}
	}
	return false
}

func (r *reading) oldCopy(t *fsm.Transfer) *api.OldCopy {
	if t.Left.Old == "" {
		return nil
	}
	left := time.Duration(t.Left.Until.Sub(r.now)) * time.Millisecond
	old := &api.OldCopy{Transfer: t.ID, Node: veiled(r.veil, "node", r.nodeName(t.Left.Old)),
		Until: r.wall.Add(left).UTC().Truncate(time.Second)}
	if refusal := r.NeedsOld(t); refusal != nil {
		old.Needed = r.veil.text(refusal.Message)
	}
	return old
}

func (r *reading) transfer(t *fsm.Transfer) api.Transfer {
	side := t.Worker()
	v := api.Transfer{
		ID: t.ID, Kind: t.Kind, Phase: t.Phase, Volume: t.Volume(), Volumes: t.Volumes(),
		From: veiled(r.veil, "node", r.nodeName(t.From)), To: veiled(r.veil, "node", r.nodeName(t.To)), Backup: t.Backup,
		Live: t.Options.Live, Attach: t.Options.Attach, Bytes: side.Bytes, Total: side.Total, Sum: side.Sum,
		Code: t.Failure.Code, Message: r.veil.text(t.Failure.Message),
		OldCopy: r.oldCopy(t), Actor: t.Marks.Actor, CreatedAt: wallTime(t.Marks.Wall),
		EndedAt: wallTimeOrNil(t.Marks.EndedWall), Index: t.Marks.Index,
	}
	if t.Kind == model.TransferBackup && t.Phase == model.TransferSucceeded {
		v.Backup = model.BackupID(t.ID)
	}
	if !t.Phase.Ended() {
		v.WaitingFor = r.transferWaits(t)
	}
	return v
}

// transferWaits returns, as text, what blocks a transfer: the first blocker of the instance in its slot, or else an
// offline node. It returns "" if nothing blocks the transfer.
func (r *reading) transferWaits(t *fsm.Transfer) string {
	if t.Phase == model.TransferQueued || t.Phase == model.TransferStarting {
		for i := range r.InstancesInSlot(t.Group, t.Slot) {
			for _, b := range r.waiting().Instances[i.ID] {
				return string(b.Code) + ": " + r.veil.text(b.Message)
			}
		}
	}
	for _, id := range []model.NodeID{t.From, t.To} {
		if n, ok := r.Nodes.Get(id); ok && n.Health == model.HealthOffline {
			return string(model.CodeAgentUnreachable) + ": " + r.veil.text("node "+n.Name+" is offline")
		}
	}
	return ""
}

func (r *reading) backup(b *fsm.Backup) api.Backup {
	v := api.Backup{
		ID: b.ID, Volume: model.NewVolumeID(b.Group, b.Slot, b.Names[0]), Node: r.nodeName(b.Node), SizeBytes: b.Bytes,
		Sum: b.Sum, Live: b.Live, Actor: b.Actor,
		CreatedAt: wallTime(b.Wall), Index: b.Index, Volumes: []model.VolumeID{},
	}
	for _, name := range b.Names {
		v.Volumes = append(v.Volumes, model.NewVolumeID(b.Group, b.Slot, name))
	}
	return v
}

type volumeList struct {
	ListParams
	Job  string `query:"job" doc:"of this job only"`
	Node string `query:"node" doc:"on this node only: id, name or unique prefix"`
}

func (in *volumeList) narrowed() bool { return in.Job+in.Node != "" }

type transferList struct{ ListParams }

type backupList struct{ ListParams }

// VolumePath is the part of a path that names a volume. The slashes of the volume's id are written as %2F.
type VolumePath struct {
	ID string `path:"id" doc:"id of a volume, with %2F for each /; a read also takes a unique prefix"`
}

// TransferPath is the part of a path that names a transfer.
type TransferPath struct {
	ID string `path:"id" doc:"id of a transfer; a read also takes a unique prefix"`
}

// BackupPath is the part of a path that names a backup.
type BackupPath struct {
	ID string `path:"id" doc:"id of a backup; a read also takes a unique prefix"`
}

type volumeRead struct {
	ReadParams
	VolumePath
}

type transferRead struct {
	ReadParams
	TransferPath
}

type backupRead struct {
	ReadParams
	BackupPath
}

func (s *Server) volumeOperations() []operation {
	volumes := []fsm.Topic{"volumes", "instances", "nodes"}
	return append([]operation{
		list(s, getRoute("list-volumes", "/v1/volumes", "volumes", "List volumes"),
			listing[volumeList, api.Volume]{topics: topics[volumeList](volumes...), rows: listVolumes}),
		read(s, getRoute("get-volume", "/v1/volumes/{id}", "volumes", "Show a volume, what was done to it and its backups"),
			topics[volumeRead](volumes...), showVolume),
		list(s, getRoute("list-transfers", "/v1/transfers", "volumes", "List work on volumes"),
			listing[transferList, api.Transfer]{
				topics: topics[transferList]("volumes"),
				rows: func(r *reading, _ *transferList, from string, yield func(string, api.Transfer) bool) error {
					scan(r.Transfers, from, r.transfer, yield)
					return nil
				},
			}),
		read(s, getRoute("get-transfer", "/v1/transfers/{id}", "volumes", "Show work on volumes"),
			topics[transferRead]("volumes"),
			func(_ context.Context, r *reading, in *transferRead) (api.Transfer, error) {
				t, refusal := r.FindTransfer(in.ID)
				if refusal != nil {
					return api.Transfer{}, refusal
				}
				return r.transfer(t), nil
			}),
		list(s, getRoute("list-backups", "/v1/backups", "volumes", "List backups of volumes"),
			listing[backupList, api.Backup]{
				topics: topics[backupList]("volumes"),
				rows: func(r *reading, _ *backupList, from string, yield func(string, api.Backup) bool) error {
					scan(r.Backups, from, r.backup, yield)
					return nil
				},
			}),
		read(s, getRoute("get-backup", "/v1/backups/{id}", "volumes", "Show a backup"), topics[backupRead]("volumes"),
			func(_ context.Context, r *reading, in *backupRead) (api.Backup, error) {
				b, refusal := r.FindBackup(in.ID)
				if refusal != nil {
					return api.Backup{}, refusal
				}
				return r.backup(b), nil
			}),
	}, s.volumeWrites()...)
}

func listVolumes(r *reading, in *volumeList, from string, yield func(string, api.Volume) bool) error {
	node := model.NodeID("")
	if in.Node != "" {
		n, refusal := r.FindNode(in.Node)
		if refusal != nil {
			return refusal
		}
		node = n.ID
	}
	for id, v := range r.Volumes.From(model.VolumeID(from)) {
		job, _ := v.Group.Split()
		if in.Job != "" && string(job) != in.Job || node != "" && v.Home != node {
			continue
		}
		if !yield(string(id), r.volume(v)) {
			break
		}
	}
	return nil
}

func showVolume(_ context.Context, r *reading, in *volumeRead) (api.VolumeDetail, error) {
	v, refusal := r.FindVolume(in.ID)
	if refusal != nil {
		return api.VolumeDetail{}, refusal
	}
	out := api.VolumeDetail{Volume: r.volume(v), Transfers: []api.Transfer{}, Backups: []api.Backup{}}
	for _, t := range r.Transfers.All() {
		if r.concerns(t, v) {
			out.Transfers = append(out.Transfers, r.transfer(t))
		}
	}
	id := model.NewVolumeID(v.Group, v.Slot, v.Name)
	for _, b := range r.Backups.All() {
		if strings.HasPrefix(string(id), string(model.NewVolumeID(b.Group, b.Slot, ""))) {
			out.Backups = append(out.Backups, r.backup(b))
		}
	}
	return out, nil
}
