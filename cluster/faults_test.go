package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// faultyRig is a rig whose servers have logs in memory and simulated disk space. Its maps are by server number.
type faultyRig struct {
	*rig
	stores map[int]*faultyStore
	free   map[int]*atomic.Int64 // bytes
}

func newFaultyRig(t *testing.T) *faultyRig {
	f := &faultyRig{rig: newRig(t), stores: map[int]*faultyStore{}, free: map[int]*atomic.Int64{}}
	for i := 1; i <= 3; i++ {
		f.stores[i], f.free[i] = newFaultyStore(), new(atomic.Int64)
		f.free[i].Store(1 << 30)
	}
	return f
}

func (f *faultyRig) start(i int) *rigServer {
	f.t.Helper()
	return f.rig.start(i, func(c *Config) {
		c.Disk.OpenLog = func(string) (LogStore, error) { return f.stores[i], nil }
		c.Disk.Space = func(string) (int64, int64, error) { return f.free[i].Load(), 1 << 30, nil }
	})
}

func (f *faultyRig) startAll() *rigServer {
	f.t.Helper()
	for i := 1; i <= 3; i++ {
		f.start(i)
	}
	return f.leader(20 * time.Second)
}

// other returns a running server other than s, and its number.
func (f *faultyRig) other(s *rigServer) (*rigServer, int) {
	for _, o := range f.running() {
		if o != s {
			return o, hostNumber(o.host)
		}
	}
	f.t.Fatal("nobody else runs")
	return nil, 0
}

// hangDisk makes a server's disk hang. The returned function waits until the watchdog has noticed the hang, lets the
// disk work again, and waits until the server has stopped.
func (f *faultyRig) hangDisk(s *rigServer) (ended func()) {
	f.t.Helper()
	hang := make(chan struct{})
	f.stores[hostNumber(s.host)].set(nil, hang)
	return func() {
		f.t.Helper()
		eventually(f.t, storeHangs+5*time.Second, "the watchdog", func() bool { return s.failure() != nil })
		close(hang)
		<-s.done
	}
}

// A follower whose disk fails stops instead of running on while raft can't replicate to it. The other servers continue.
// After a restart on a good disk, the follower catches up.
func TestFollowerWithAFailingDiskStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		leader := f.startAll()
		follower, i := f.other(leader)
		f.stores[i].set(errors.New("input/output error"), nil)
		for n := range 5 {
			f.mustRegister(fmt.Sprintf("n%d", n))
		}
		eventually(t, 10*time.Second, "the follower stopped", func() bool {
			select {
			case <-follower.done:
				return true
			default:
				return false
			}
		})
		if follower.fatal == nil || follower.err == nil || !strings.Contains(follower.err.Error(), "input/output error") {
			t.Errorf("fatal %v, Run %v; want the disk's error", follower.fatal, follower.err)
		}
		f.stores[i].set(nil, nil)
		again := f.start(i)
		eventually(t, 30*time.Second, "caught up", func() bool { return again.machine.State().Nodes.Len() == 5 })
		f.agree(5 * time.Second)
	})
}

// By raft's own rules, a leader with a hanging disk leads for ever, because its heartbeats need no disk. The watchdog
// stops that server, and another one leads.
func TestLeaderWithAHangingDiskIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		leader := f.startAll()
		ended := f.hangDisk(leader)
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err := leader.register(ctx, "n1")
		if !errors.Is(err, &model.Error{Code: model.CodeUnknownOutcome}) {
			t.Errorf("a write on a hanging disk: %v, want unknown", err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the write blocked for %s, 3 s were allowed", took)
		}
		ended()
		if next := f.leader(20 * time.Second); next == leader {
			t.Error("the server with the hanging disk leads")
		}
		f.mustRegister("n2")
	})
}

// While raft's main loop waits for the disk, it can't hand leadership over. If the loop then exits, it never answers
// the requests that still wait. So the server refuses a transfer itself, without a request to raft.
func TestLeaderWithAHangingDiskHandsNothingOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		leader := f.startAll()
		ended := f.hangDisk(leader)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = leader.register(ctx, "n1") // its outcome is unknown
		began := time.Now()
		if err := leader.TransferLeader(context.Background(), ""); !errors.Is(err, &model.Error{Code: model.CodeConflict}) ||
			!strings.Contains(err.Error(), "disk") {
			t.Errorf("got %v, want a conflict that names the disk", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %s, two election timeouts were allowed", took)
		}
		ended()
	})
}

// A leader whose disk is full hands leadership over before a write fails. Once its disk has space again, that server
// catches up without a restart.
func TestFullDiskOnTheLeaderStepsAside(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		leader := f.startAll()
		free := f.free[hostNumber(leader.host)]
		free.Store(10)
		next := leader
		eventually(t, 20*time.Second, "another leads", func() bool {
			next = f.leader(20 * time.Second)
			return next != leader
		})
		for n := range 3 {
			f.mustRegister(fmt.Sprintf("n%d", n))
		}
		time.Sleep(time.Minute)
		if leader.fatal != nil {
			t.Fatalf("the server with the full disk ended: %v", leader.fatal)
		}
		if got := leader.machine.State().Nodes.Len(); got != 0 {
			t.Errorf("it appended %d nodes to a full disk", got)
		}
		if leader.Status().Room != RoomNone {
			t.Errorf("room %s", leader.Status().Room)
		}
		free.Store(1 << 30)
		eventually(t, time.Minute, "it has everything again", func() bool { return leader.machine.State().Nodes.Len() == 3 })
		f.agree(5 * time.Second)
	})
}

// If one of three servers has a full disk and another has stopped, no majority can write. Then writes are refused with
// a code at once, so callers don't wait for a timeout.
func TestFullDiskBesideAnAbsentServerRefusesWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		leader := f.startAll()
		f.mustRegister("before")
		var followers []*rigServer
		for _, s := range f.all() {
			if s != leader {
				followers = append(followers, s)
			}
		}
		f.free[hostNumber(followers[0].host)].Store(10)
		time.Sleep(10 * time.Second)
		followers[1].stop()
		var err error
		eventually(t, time.Minute, "writes are refused", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err = leader.register(ctx, "refused")
			return errors.Is(err, &model.Error{Code: model.CodeDiskFull})
		})
		if !strings.Contains(err.Error(), followers[0].cfg.Name) || !strings.Contains(err.Error(), followers[1].cfg.Name) {
			t.Errorf("the refusal does not name both servers: %v", err)
		}
		f.free[hostNumber(followers[0].host)].Store(1 << 30)
		f.mustRegister("after")
	})
}

// If two of three servers have full disks, writes are refused with a code and reads still work. Writes work again once
// the disks have space.
func TestFullDisksOnTwoServersRefuseWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		f.startAll()
		f.mustRegister("before")
		f.free[1].Store(10)
		f.free[2].Store(10)
		var leader *rigServer
		eventually(t, 30*time.Second, "writes are refused", func() bool {
			leader = f.leader(20 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := leader.register(ctx, "refused")
			return errors.Is(err, &model.Error{Code: model.CodeDiskFull})
		})
		time.Sleep(time.Minute)
		leader = f.leader(5 * time.Second)
		if _, self, ok := leader.Leader(); !self || !ok {
			t.Error("the leader does not answer reads")
		}
		if leader.machine.State().Nodes.Len() < 1 {
			t.Error("a read lacks what was written")
		}
		for _, s := range f.all() {
			if s.fatal != nil {
				t.Errorf("%s ended: %v", s.host, s.fatal)
			}
		}
		f.free[1].Store(1 << 30)
		f.free[2].Store(1 << 30)
		f.mustRegister("after")
		f.agree(30 * time.Second)
		for _, s := range f.running() {
			if err := fsm.Check(s.machine.State()); err != nil {
				t.Error(err)
			}
		}
	})
}

// While a leader's room changes, a read is refused or is confirmed by a Barrier, never neither.
func TestReadWhileTheRoomChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		leader := f.rig.start(1, func(c *Config) {
			c.BootstrapExpect, c.Gossip.Join = 1, nil
			c.Disk.OpenLog = func(string) (LogStore, error) { return f.stores[1], nil }
		})
		f.leader(20 * time.Second)
		var changing sync.WaitGroup
		var stop atomic.Bool
		changing.Go(func() {
			for !stop.Load() {
				leader.disk.space.state.Store(int32(RoomNone))
				leader.disk.space.state.Store(int32(RoomEnough))
			}
		})
		defer changing.Wait()
		defer stop.Store(true)
		full := 0
		for range 20_000 {
			before := leader.raft.LastIndex()
			switch err := leader.ReadBarrier(t.Context()); {
			case err != nil:
				full++
			case leader.raft.LastIndex() == before:
				t.Fatal("a read was allowed without a Barrier")
			}
		}
		t.Logf("%d reads of 20000 were refused", full)
	})
}

// After an interrupted transfer of leadership, raft can refuse every write for ever. transferWatch notices when raft
// has done so for longer than the limit.
func TestStuckTransferEndsTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var w transferWatch
		const limit = 2 * time.Second
		for range 3 {
			if w.stuck(raft.ErrLeadershipTransferInProgress, limit) {
				t.Fatal("stuck at once")
			}
			time.Sleep(500 * time.Millisecond)
		}
		w.stuck(nil, limit)
		time.Sleep(time.Hour)
		if w.stuck(raft.ErrLeadershipTransferInProgress, limit) {
			t.Fatal("an old transfer counts although a write succeeded since")
		}
		time.Sleep(limit + time.Millisecond)
		if !w.stuck(raft.ErrLeadershipTransferInProgress, limit) {
			t.Fatal("not noticed")
		}
	})
}

// raft's main loop blocks while nobody reads its notifications of leadership. A Lead that returns slowly must not block
// the loop.
func TestSlowLeadDoesNotBlockRaft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		for i := 1; i <= 3; i++ {
			r.start(i, func(c *Config) {
				c.Lead = func(ctx context.Context, _ uint64) error {
					<-ctx.Done()
					time.Sleep(20 * time.Second)
					return nil
				}
			})
		}
		leader := r.leader(20 * time.Second)
		for range 5 { // more changes of leadership than any buffer has room for
			r.isolate(leader.host)
			time.Sleep(3 * time.Second)
			r.net.Heal()
			time.Sleep(3 * time.Second)
		}
		eventually(t, 2*time.Minute, "everybody knows a leader", func() bool {
			for _, s := range r.running() {
				if _, _, ok := s.Leader(); !ok {
					return false
				}
			}
			return true
		})
	})
}

// raft signals leadership before it has applied all entries of earlier terms. Lead must start only after they are
// applied.
func TestLeadBeginsWithEverythingApplied(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		missing := make(chan string, 100)
		var acknowledged atomic.Int64
		for i := 1; i <= 3; i++ {
			r.start(i, func(c *Config) {
				machine := c.Machine
				c.Lead = func(ctx context.Context, _ uint64) error {
					if got, want := machine.State().Nodes.Len(), int(acknowledged.Load()); got < want {
						missing <- fmt.Sprintf("%s leads with %d of %d nodes", c.Name, got, want)
					}
					<-ctx.Done()
					return nil
				}
			})
		}
		for i := range 10 {
			leader := r.leader(30 * time.Second)
			r.mustRegister(fmt.Sprintf("n%d", i))
			acknowledged.Add(1)
			r.isolate(leader.host)
			r.leader(30 * time.Second)
			r.net.Heal()
		}
		close(missing)
		for m := range missing {
			t.Error(m)
		}
	})
}
