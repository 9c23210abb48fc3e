package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/outspan/outspan/api"
)

// Volumes are the data of instances. A volume is named by its id: job/group/slot/name.
type Volumes struct{ calls }

// VolumeListOptions choose volumes.
type VolumeListOptions struct {
	ListOptions
	Job  string // of this job only
	Node string // on this node only
}

func (o VolumeListOptions) query() url.Values {
	q := o.ListOptions.query()
	set(q, "job", o.Job)
	set(q, "node", o.Node)
	return q
}

// List reads the volumes, all pages in one.
func (x Volumes) List(ctx context.Context, o VolumeListOptions) (List[api.Volume], error) {
	return list[api.Volume](ctx, x.calls, route("volumes"), o.query())
}

// All yields the volumes; pages are read as they are needed. After an error it ends.
func (x Volumes) All(ctx context.Context, o VolumeListOptions) iter.Seq2[api.Volume, error] {
	return each[api.Volume](ctx, x.calls, route("volumes"), o.query())
}

// Get reads one volume with what was done to it. Codes: not_found, ambiguous.
func (x Volumes) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.VolumeDetail], error) {
	return read[api.VolumeDetail](ctx, x.calls, route("volumes", ref), o.query())
}

// Migrate moves the volumes of a slot to another node.
func (x Volumes) Migrate(ctx context.Context, ref string, body api.MigrateBody, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, x.calls, http.MethodPost, route("volumes", ref, "migrate"), o.query(), body)
}

// Backup writes an archive of a volume on its node.
func (x Volumes) Backup(ctx context.Context, ref string, body api.BackupBody, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, x.calls, http.MethodPost, route("volumes", ref, "backup"), o.query(), body)
}

// Attach puts other data of a volume to use.
func (x Volumes) Attach(ctx context.Context, ref string, body api.AttachBody, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, x.calls, http.MethodPost, route("volumes", ref, "attach"), o.query(), body)
}

// Found lists data on the disks of nodes that the servers neither use nor keep. It asks the agents.
func (x Volumes) Found(ctx context.Context) (Response[api.FoundVolumes], error) {
	return read[api.FoundVolumes](ctx, x.calls, route("found-volumes"), nil)
}

// Backups are the archives of volumes.
type Backups struct{ calls }

// List reads the backups, all pages in one.
func (x Backups) List(ctx context.Context, o ListOptions) (List[api.Backup], error) {
	return list[api.Backup](ctx, x.calls, route("backups"), o.query())
}

// All yields the backups; pages are read as they are needed. After an error it ends.
func (x Backups) All(ctx context.Context, o ListOptions) iter.Seq2[api.Backup, error] {
	return each[api.Backup](ctx, x.calls, route("backups"), o.query())
}

// Get reads one backup. Codes: not_found, ambiguous.
func (x Backups) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Backup], error) {
	return read[api.Backup](ctx, x.calls, route("backups", ref), o.query())
}

// Restore unpacks an archive.
func (x Backups) Restore(ctx context.Context, ref string, body api.RestoreBody, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, x.calls, http.MethodPost, route("backups", ref, "restore"), o.query(), body)
}

// Forget removes a backup from the record; its archive stays on the disk.
func (x Backups) Forget(ctx context.Context, ref string, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, x.calls, http.MethodPost, route("backups", ref, "forget"), o.query(), nil)
}

// Transfers are the work on volumes: moves, backups, restores and attachments.
type Transfers struct{ calls }

// List reads the transfers, all pages in one.
func (x Transfers) List(ctx context.Context, o ListOptions) (List[api.Transfer], error) {
	return list[api.Transfer](ctx, x.calls, route("transfers"), o.query())
}

// All yields the transfers; pages are read as they are needed. After an error it ends.
func (x Transfers) All(ctx context.Context, o ListOptions) iter.Seq2[api.Transfer, error] {
	return each[api.Transfer](ctx, x.calls, route("transfers"), o.query())
}

// Get reads one transfer. Codes: not_found, ambiguous.
func (x Transfers) Get(ctx context.Context, ref string, o ReadOptions) (Response[api.Transfer], error) {
	return read[api.Transfer](ctx, x.calls, route("transfers", ref), o.query())
}

// Cancel gives a transfer up; the data stays where it was.
func (x Transfers) Cancel(ctx context.Context, ref string, o WriteOptions) (Response[api.TransferReply], error) {
	return write[api.TransferReply](ctx, x.calls, http.MethodPost, route("transfers", ref, "cancel"), o.query(), nil)
}
