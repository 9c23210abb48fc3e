package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/api"
)

// Volumes are the operations on volumes, the data of instances. The id of a volume is job/group/slot/name.
type Volumes struct{ calls }

// VolumeListOptions are the options of a list of volumes.
type VolumeListOptions struct {
	ListOptions
	Job  string // if set, only volumes of this job
	Node string // if set, only volumes on this node
}

func (o VolumeListOptions) query() url.Values {
	q := o.ListOptions.query()
	set(q, "job", o.Job)
	set(q, "node", o.Node)
	return q
}

// List returns the volumes. It reads all pages.
func (v Volumes) List(ctx context.Context, o VolumeListOptions) (List[api.Volume], error) {
	return list[api.Volume](ctx, v.calls, route("volumes"), o.query())
}

// All yields the volumes and reads each page when it is needed. If a read fails, All yields the error and stops.
func (v Volumes) All(ctx context.Context, o VolumeListOptions) iter.Seq2[api.Volume, error] {
	return each[api.Volume](ctx, v.calls, route("volumes"), o.query())
}

// Get returns one volume with its transfers and backups. Codes: not_found, ambiguous.
func (v Volumes) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.VolumeDetail], error) {
	return read[api.VolumeDetail](ctx, v.calls, route("volumes", ref), o.query())
}

// Migrate moves the volumes of a slot to another node, together with the slot's instance.
func (v Volumes) Migrate(
	ctx context.Context, ref string, body api.MigrateBody, o WriteOptions,
) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, v.calls, http.MethodPost, route("volumes", ref, "migrate"), o.query(), body)
}

// Backup writes the volumes of a slot to the backup directory of their node. Unless body.Live is set, the slot's
// instance is stopped during the backup.
func (v Volumes) Backup(
	ctx context.Context, ref string, body api.BackupBody, o WriteOptions,
) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, v.calls, http.MethodPost, route("volumes", ref, "backup"), o.query(), body)
}

// Attach makes a slot use a restored volume, an old copy, or data found on a node.
func (v Volumes) Attach(
	ctx context.Context, ref string, body api.AttachBody, o WriteOptions,
) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, v.calls, http.MethodPost, route("volumes", ref, "attach"), o.query(), body)
}

// Found lists data of volumes on the nodes' disks that no instance uses and that the servers don't keep as an old copy.
// The answering server asks every agent.
func (v Volumes) Found(ctx context.Context) (Response[api.FoundVolumes], error) {
	return read[api.FoundVolumes](ctx, v.calls, route("found-volumes"), nil)
}

// Backups are the operations on backups, the archives of volumes.
type Backups struct{ calls }

// List returns the backups. It reads all pages.
func (b Backups) List(ctx context.Context, o ListOptions) (List[api.Backup], error) {
	return list[api.Backup](ctx, b.calls, route("backups"), o.query())
}

// All yields the backups and reads each page when it is needed. If a read fails, All yields the error and stops.
func (b Backups) All(ctx context.Context, o ListOptions) iter.Seq2[api.Backup, error] {
	return each[api.Backup](ctx, b.calls, route("backups"), o.query())
}

// Get returns one backup. Codes: not_found, ambiguous.
func (b Backups) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Backup], error) {
	return read[api.Backup](ctx, b.calls, route("backups", ref), o.query())
}

// Restore makes a volume from a backup. If body.Attach is true, the slot uses the volume at once. Otherwise nothing
// uses it until Volumes.Attach is called.
func (b Backups) Restore(
	ctx context.Context, ref string, body api.RestoreBody, o WriteOptions,
) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, b.calls, http.MethodPost, route("backups", ref, "restore"), o.query(), body)
}

// Forget removes the record of a backup. The archive stays on the disk.
func (b Backups) Forget(ctx context.Context, ref string, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, b.calls, http.MethodPost, route("backups", ref, "forget"), o.query(), nil)
}

// Transfers are the operations on transfers: migrations, backups, restores and attachments of volumes.
type Transfers struct{ calls }

// List returns the transfers. It reads all pages.
func (t Transfers) List(ctx context.Context, o ListOptions) (List[api.Transfer], error) {
	return list[api.Transfer](ctx, t.calls, route("transfers"), o.query())
}

// All yields the transfers and reads each page when it is needed. If a read fails, All yields the error and stops.
func (t Transfers) All(ctx context.Context, o ListOptions) iter.Seq2[api.Transfer, error] {
	return each[api.Transfer](ctx, t.calls, route("transfers"), o.query())
}

// Get returns one transfer. Codes: not_found, ambiguous.
func (t Transfers) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Transfer], error) {
	return read[api.Transfer](ctx, t.calls, route("transfers", ref), o.query())
}

// Cancel gives up a transfer that has not attached its data yet, or whose target node is confirmed dead. If the
// transfer has finished, Cancel removes the copy that the transfer left: a restored copy that is not in use, or an old
// copy. Code: conflict if there is nothing to give up or remove.
func (t Transfers) Cancel(ctx context.Context, ref string, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, t.calls, http.MethodPost, route("transfers", ref, "cancel"), o.query(), nil)
}
