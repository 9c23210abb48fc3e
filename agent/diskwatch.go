package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

const (
	// diskCheckEvery is the default pause between two measurements of all working directories. The pause is also at least
	// diskShare times as long as the measurement took.
	diskCheckEvery = 15 * time.Second
	diskShare      = 9
	// An instance's use is reported again once it differs by more than an eighth (1/diskNews) from the last report.
	diskNews = 8
	// diskTries is how many rounds are made for the first report if an instance can't be measured. The last of them
	// reports without that instance.
	diskTries = 5
	// diskEnd is how long a measurement may delay the stop of the agent, since the disk may hang.
	diskEnd = time.Second
)

// limited is an instance with a disk limit.
type limited struct {
	id    model.InstanceID
	limit int64
}

// diskWatch measures the working directories of instances with a disk limit, and reports the instances above their
// limit. Only one goroutine may use it.
type diskWatch struct {
	list    func() []limited
	dir     func(model.InstanceID) string
	measure func(context.Context, string) (diskUse, error)
	tell    func([]model.DiskUse)
	log     hclog.Logger

	above  map[model.InstanceID]model.DiskUse // instances above their limit, with the use that was reported last
	told   bool                               // whether the first report was made
	tries  int                                // rounds without a first report, because an instance can't be measured
	unsure map[model.InstanceID]bool          // instances measured only in part, with that part below the limit
	filler diskFiller
}

// diskFiller is the configuration and the state of lookForFiller.
type diskFiller struct {
	full  func(was bool) bool
	all   func() []model.InstanceID
	tell  func(text string)
	found bool // whether an instance was found and reported
}

// workDirs returns a function that returns an instance's working directory. measures is false if DiskCheckEvery is
// negative or the runtime has no working directories.
func (a *Agent) workDirs() (dir func(model.InstanceID) string, measures bool) {
	r, ok := a.cfg.Runtime.(interface{ WorkDir(driver.ID) string })
	if !ok || a.cfg.DiskCheckEvery < 0 {
		return nil, false
	}
	return func(id model.InstanceID) string { return r.WorkDir(driver.ID(id)) }, true
}

func (a *Agent) keepMeasured(ctx context.Context) {
	dir, measures := a.workDirs()
	if !measures {
		return
	}
	w := &diskWatch{
		list: a.supervisors.limited, dir: dir, measure: inBackground(measureDisk), tell: a.shared.reports.setDisk,
		log: a.log.Named("disk"), above: map[model.InstanceID]model.DiskUse{}, unsure: map[model.InstanceID]bool{},
	}
	w.filler = diskFiller{
		full: func(was bool) bool { return roomIn(a.home.dir, was) != "" },
		all:  a.supervisors.ids, tell: a.shared.reports.setFiller,
	}
	w.run(ctx, a.cfg.DiskCheckEvery)
}

// limited lists the instances with a disk limit, in order of id. Stopped instances are included until the agent removes
// them.
func (c *supervisors) limited() []limited {
	var list []limited
	for _, m := range c.list() {
		if spec := m.wanted().Spec; spec != nil && spec.Resources.DiskBytes > 0 {
			list = append(list, limited{m.id, spec.Resources.DiskBytes})
		}
	}
	return list
}

func (c *supervisors) ids() []model.InstanceID {
	var list []model.InstanceID
	for _, m := range c.list() {
		list = append(list, m.id)
	}
	return list
}

// inBackground returns a function that calls measure, but returns at most diskEnd after ctx has ended. If the disk
// hangs, the call of measure continues in the background.
func inBackground(measure func(context.Context, string) (diskUse, error)) func(context.Context,
	string) (diskUse, error) {
	type result struct {
		use diskUse
		err error
	}
	return func(ctx context.Context, dir string) (diskUse, error) {
		done := make(chan result, 1)
		go func() {
			use, err := measure(ctx, dir)
			done <- result{use, err}
		}()
		select {
		case r := <-done:
			return r.use, r.err
		case <-ctx.Done():
		}
		limit := time.NewTimer(diskEnd)
		defer limit.Stop()
		select {
		case <-done:
		case <-limit.C:
		}
		return diskUse{}, ctx.Err()
	}
}

// run measures repeatedly until ctx ends. The first pause is every/5.
func (w *diskWatch) run(ctx context.Context, every time.Duration) {
	for pause := every / 5; sleep(ctx, pause, nil); {
		began := time.Now()
		w.look(ctx)
		w.lookForFiller(ctx)
		pause = max(every, diskShare*time.Since(began))
	}
}

// look measures every instance with a limit once and reports changes. The first report is sent only when all have been
// measured, or after diskTries rounds: the servers drop what an earlier agent reported and the report lacks.
func (w *diskWatch) look(ctx context.Context) {
	list := w.list()
	known := make(map[model.InstanceID]bool, len(list))
	moved, failed := false, false
	for _, l := range list {
		known[l.id] = true
		use, err := w.measure(ctx, w.dir(l.id))
		if ctx.Err() != nil {
			return
		}
		if err != nil { // the last reported use is kept
			w.log.Warn("work directory can't be measured", "instance", l.id, "error", err)
			failed = true
			continue
		}
		moved = w.take(l, use) || moved
		if moved && w.told {
			w.report()
			moved = false
		}
	}
	for id := range w.above {
		if !known[id] {
			delete(w.above, id)
			moved = true
		}
	}
	for id := range w.unsure {
		if !known[id] {
			delete(w.unsure, id)
		}
	}
	if failed && !w.told {
		if w.tries++; w.tries < diskTries {
			return
		}
	}
	if moved || !w.told && len(list) > 0 {
		w.report()
	}
}

// When the data directory has become full, lookForFiller measures all instances and reports the one with the highest
// use. If no instance uses any space, the next call measures again. When the directory is no longer full, it withdraws
// the report.
func (w *diskWatch) lookForFiller(ctx context.Context) {
	f := &w.filler
	if full := f.full(f.found); full == f.found {
		return
	} else if !full {
		f.found = false
		f.tell("")
		return
	}
	var largest model.InstanceID
	var most diskUse
	for _, id := range f.all() {
		use, err := w.measure(ctx, w.dir(id))
		if ctx.Err() != nil {
			return
		}
		if err == nil && use.bytes > most.bytes {
			largest, most = id, use
		}
	}
	if largest == "" {
		return
	}
	f.found = true
	w.log.Warn("the data directory is full, and one instance uses most", "instance", largest, "used_bytes",
		most.bytes, "dir", w.dir(largest))
	f.tell(fmt.Sprintf("the largest work directory is that of instance %s, with %s", largest, model.SizeText(most.bytes)))
}

// take records what an instance uses now, and returns true if the change must be reported.
func (w *diskWatch) take(l limited, use diskUse) (moved bool) {
	before, was := w.above[l.id]
	if use.bytes <= l.limit {
		w.doubt(l.id, use.partial)
		if was {
			delete(w.above, l.id)
			w.log.Info("instance is below its disk limit again", "instance", l.id, "used_bytes",
				use.bytes, "limit_bytes", l.limit)
		}
		return was
	}
	now := model.DiskUse{ID: l.id, UsedBytes: use.bytes, LimitBytes: l.limit, AtLeast: use.partial, Dir: w.dir(l.id)}
	if !was {
		w.log.Warn("instance is above its disk limit", "instance", l.id, "used_bytes", use.bytes,
			"limit_bytes", l.limit, "dir", now.Dir)
	}
	if was && !worthTelling(before, now) {
		return false
	}
	w.above[l.id] = now
	return true
}

// doubt logs once if an instance could be measured only in part. The instance may be above its limit, although the
// measured part is below.
func (w *diskWatch) doubt(id model.InstanceID, partial bool) {
	if partial && !w.unsure[id] {
		w.log.Warn("work directory can't be measured as a whole: too much is in it, or part of it can't be read",
			"instance", id, "dir", w.dir(id))
		w.unsure[id] = true
	}
	if !partial {
		delete(w.unsure, id)
	}
}

// worthTelling returns true if the limit changed or the use changed by more than 1/diskNews. Smaller changes are not
// reported, because an instance that grows all the time must not fill the servers' log.
func worthTelling(before, now model.DiskUse) bool {
	moved := now.UsedBytes - before.UsedBytes
	return max(moved, -moved) > before.UsedBytes/diskNews || now.LimitBytes != before.LimitBytes
}

// report sends the list of instances above their limit. If there are more than model.MaxDiskUses, it sends only the
// instances with the highest use.
func (w *diskWatch) report() {
	var list []model.DiskUse
	for _, id := range sortedKeys(w.above) {
		list = append(list, w.above[id])
	}
	if len(list) > model.MaxDiskUses {
		slices.SortStableFunc(list, func(a, b model.DiskUse) int { return cmp.Compare(b.UsedBytes, a.UsedBytes) })
		list = list[:model.MaxDiskUses]
		slices.SortFunc(list, func(a, b model.DiskUse) int { return cmp.Compare(a.ID, b.ID) })
	}
	w.told = true
	w.tell(list)
}
