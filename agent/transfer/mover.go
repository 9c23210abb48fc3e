package transfer

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Config is what a Mover needs. All fields but BackupDir are required.
type Config struct {
	// Volumes is the directory of local volumes. Each volume has the directory JOB/GROUP/SLOT/NAME below it.
	Volumes string
	// BackupDir is the directory of archives, typically a shared mount. If it is "", this node can't make or restore
	// backups.
	BackupDir string
	// Peers sends requests to other agents, with this agent's certificate.
	Peers http.RoundTripper
	// Hold claims volumes for holder, so that no instance can use them, and returns "". If another holder has one of the
	// volumes, Hold claims no volume and returns that other holder. Release gives back all volumes of a holder.
	Hold    func(ids []model.VolumeID, holder model.InstanceID) (user model.InstanceID)
	Release func(holder model.InstanceID)
	// Owner returns the account as which the instances of a slot run on this node. The parameter user is the user that
	// the job file names. If user is "", Owner returns the account that this node gives to the slot. MayRunAs returns the
	// account of a user id, and whether a job may name that account on this node. Owner and MayRunAs are called only if
	// the agent runs as root.
	Owner    func(group model.GroupID, slot int, user string) (Account, error)
	MayRunAs func(uid int) (Account, bool)
	// Report is called with the state of one transfer, to send it to the servers. It must not block.
	Report func(model.TransferReport)
	Log    hclog.Logger
}

// Mover carries out the orders of the servers, each in its own goroutine. Set and Handler are safe for concurrent use.
type Mover struct {
	cfg  Config
	wake chan struct{} // capacity 1

	mu       sync.Mutex
	orders   map[key]transport.TransferOrder
	maySweep bool
	served   map[model.TransferID]*source
}

// key identifies a task. A transfer may have two tasks on this node, such as attaching a copy and putting the old one
// aside.
type key struct {
	id   model.TransferID
	task transport.TransferTask
}

// New makes a Mover. It does not access the disk and starts no goroutine.
func New(cfg Config) *Mover {
	return &Mover{cfg: cfg, wake: make(chan struct{}, 1), orders: map[key]transport.TransferOrder{},
		served: map[model.TransferID]*source{}}
}

// Set replaces the orders. Orders that are not valid are logged and ignored. Run removes staged copies that no order
// names. If unsure is true, Run keeps them, because orders may be missing after a restore of the servers' state. Set
// does not block.
func (m *Mover) Set(orders []transport.TransferOrder, unsure bool) {
	m.mu.Lock()
	m.orders = make(map[key]transport.TransferOrder, len(orders))
	for _, o := range orders {
		if valid(&o) {
			m.orders[key{o.ID, o.Task}] = o
		} else {
			m.cfg.Log.Error("transfer can't be carried out", "transfer", o.ID, "task", o.Task)
		}
	}
	m.maySweep = !unsure
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// valid reports whether an order has a slot and volumes, and no name in it could lead out of the directories.
func valid(o *transport.TransferOrder) bool {
	job, group := o.Group.Split()
	ok := model.ValidName(string(o.ID)) && model.ValidName(string(job)) && model.ValidName(group) &&
		o.Slot >= 0 && len(o.Names) > 0
	for _, name := range o.Names {
		ok = ok && model.ValidName(name)
	}
	return ok && (o.Staged == "" || model.ValidName(string(o.Staged))) &&
		(o.Backup == "" || model.ValidName(string(o.Backup)))
}

type worker struct {
	order transport.TransferOrder
	stop  func() // cancels the goroutine of the order and waits until it has returned
}

// Run carries out orders until ctx ends. It returns when all its goroutines have returned.
func (m *Mover) Run(ctx context.Context) error {
	working := map[key]worker{}
	defer func() {
		for _, w := range working {
			w.stop()
		}
	}()
	for {
		select {
		case <-m.wake:
		case <-ctx.Done():
			return nil
		}
		m.mu.Lock()
		orders, maySweep := m.orders, m.maySweep
		m.mu.Unlock()
		for k, w := range working {
			if o, still := orders[k]; !still || !reflect.DeepEqual(o, w.order) { // e.g. the source's address changed
				w.stop()
				delete(working, k)
			}
		}
		if maySweep {
			m.sweep(orders)
		}
		for k, o := range orders {
			if _, there := working[k]; !there {
				working[k] = m.begin(ctx, o)
			}
		}
	}
}

func (m *Mover) begin(ctx context.Context, o transport.TransferOrder) worker {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := &task{m: m, TransferOrder: o, log: m.cfg.Log.With("transfer", o.ID, "task", o.Task)}
		t.run(ctx)
	}()
	return worker{order: o, stop: func() { cancel(); <-done }}
}

// sweep removes staged copies that no order names.
func (m *Mover) sweep(orders map[key]transport.TransferOrder) {
	wanted := map[string]bool{}
	for _, o := range orders {
		wanted[string(o.ID)], wanted[string(o.Staged)] = true, true
	}
	entries, err := os.ReadDir(filepath.Join(m.cfg.Volumes, stagingDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.cfg.Log.Warn("copies of transfers can't be listed", "error", err)
	}
	for _, e := range entries {
		if wanted[e.Name()] {
			continue
		}
		if err := erase.Tree(filepath.Join(m.cfg.Volumes, stagingDir, e.Name())); err != nil {
			m.cfg.Log.Warn("copy of a transfer that is over can't be removed", "transfer", e.Name(), "error", err)
		}
	}
}

const stagingDir = ".transfer"

// task is an order that a goroutine carries out.
type task struct {
	transport.TransferOrder
	m    *Mover
	log  hclog.Logger
	last time.Time // when the last report was sent

	synced int64 // how many bytes had been copied at the last sync to the disk
}

// The pauses between the tries of a task grow from retryFirst to retryMost. Reports of progress are at least
// reportEvery apart.
const (
	retryFirst  = 200 * time.Millisecond
	retryMost   = 5 * time.Second
	reportEvery = 2 * time.Second
)

// run carries out the order, and holds the volumes meanwhile if necessary (see hold). It tries again after an error,
// and returns only when ctx ends.
func (t *task) run(ctx context.Context) {
	work := map[transport.TransferTask]func(context.Context) error{
		transport.TaskServe: t.serve, transport.TaskFetch: t.fetch, transport.TaskBackup: t.backup,
		transport.TaskRestore: t.restore,
		transport.TaskFind:    t.find, transport.TaskAttach: t.attach, transport.TaskRetire: t.retire,
		transport.TaskDrop: t.drop,
	}[t.Task]
	if work == nil { // TaskKeep: while this order exists, sweep does not remove the copy
		<-ctx.Done()
		return
	}
	for pause := retryFirst; ctx.Err() == nil; pause = min(2*pause, retryMost) {
		err := t.hold()
		if err == nil {
			err = work(ctx)
			t.m.cfg.Release(t.holder())
		}
		var again *retry
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			<-ctx.Done()
			return
		case errors.As(err, &again):
			t.log.Debug("transfer waits", "error", err)
		default:
			t.fail(err)
		}
		wait(ctx, pause)
	}
}

// retry marks an error that may be gone at the next try. Such an error is not reported to the servers.
type retry struct{ error }

func again(err error) error { return &retry{err} }

// Unwrap returns the error inside.
func (r *retry) Unwrap() error { return r.error }

// fail reports an error to the servers. The task is tried again anyway, until the servers withdraw its order.
func (t *task) fail(err error) {
	refusal := &model.Error{Code: model.CodeInternal, Message: err.Error()}
	_ = errors.As(err, &refusal) // if err has no code, it is reported as internal
	t.log.Error("transfer failed", "code", refusal.Code, "error", refusal.Message)
	t.m.cfg.Report(model.TransferReport{ID: t.ID, State: model.SideFailed, Code: refusal.Code, Message: refusal.Message})
}

func (t *task) holder() model.InstanceID {
	return model.InstanceID("transfer/" + string(t.ID) + "/" + string(t.Task))
}

// hold claims the task's volumes if no instance may use them during the task. It claims nothing for a live backup, or
// if the task changes only staged copies or data that was put aside. If another holder has one of the volumes, hold
// returns a retry.
func (t *task) hold() error {
	switch t.Task {
	case transport.TaskServe, transport.TaskAttach, transport.TaskRetire, transport.TaskBackup:
	case transport.TaskDrop: // data that is already put aside needs no claim: instances don't use it
		all, err := t.volumes()
		if err != nil || !slices.ContainsFunc(all, func(v volume) bool { return v.here }) {
			return err
		}
	default:
		return nil
	}
	if t.Task == transport.TaskBackup && t.Live {
		return nil
	}
	ids := make([]model.VolumeID, len(t.Names))
	for i, name := range t.Names {
		ids[i] = model.NewVolumeID(t.Group, t.Slot, name)
	}
	if user := t.m.cfg.Hold(ids, t.holder()); user != "" {
		return again(model.Refuse(model.CodeVolumeInUse, "the volumes are in use by %s", user))
	}
	return nil
}

func (t *task) report(state model.TransferState, done, total int64, sum string) {
	t.last = time.Now()
	t.m.cfg.Report(model.TransferReport{ID: t.ID, State: state, Bytes: done, Total: total, Sum: sum})
}

// progress reports if the last report is at least reportEvery old.
func (t *task) progress(state model.TransferState, done, total int64) {
	if time.Since(t.last) >= reportEvery {
		t.report(state, done, total, "")
	}
}

func (t *task) slotDir() string {
	job, group := t.Group.Split()
	return filepath.Join(t.m.cfg.Volumes, string(job), group, strconv.Itoa(t.Slot))
}

func (t *task) staging(id model.TransferID, parts ...string) string {
	return filepath.Join(append([]string{t.m.cfg.Volumes, stagingDir, string(id)}, parts...)...)
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
