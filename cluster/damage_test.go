package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
)

// A follower's log has an entry that can't be read, because the entry is damaged or a newer program wrote it. Each time
// the follower is started, it must stop before it shows a state that lacks the entry (S5). The other servers continue.
// Once the entry is readable again, the follower catches up.
func TestDamagedEntry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFaultyRig(t)
		f.startAll()
		for n := range 10 {
			f.mustRegister(fmt.Sprintf("n%d", n))
		}
		f.agree(10 * time.Second)
		victim, i := f.other(f.leader(10 * time.Second))
		victim.stop()
		whole := f.stores[i].lastCommand(t)
		damaged := *whole
		damaged.Data = append([]byte{whole.Data[0] ^ 0xff}, whole.Data[1:]...)
		f.stores[i].put(t, &damaged)
		for round := range 3 {
			again := f.start(i)
			f.mustRegister(fmt.Sprintf("later%d", round))
			until := time.Now().Add(20 * time.Second)
			for again.failure() == nil && time.Now().Before(until) {
				time.Sleep(50 * time.Millisecond)
			}
			f.leader(10 * time.Second)
			if again.failure() == nil {
				got, want := again.machine.State(), f.leader(10*time.Second).machine.State()
				t.Fatalf("S5: a server goes on although it can't read entry %d of its log: at index %d it has %s, the leader at "+
					"index %d has %s",
					whole.Index, got.Index, fsm.Digest(got), want.Index, fsm.Digest(want))
			}
			<-again.done
			if got := again.machine.State().Index; got >= whole.Index {
				t.Fatalf("S5: a server that can't read entry %d shows a state at index %d", whole.Index, got)
			}
		}
		f.stores[i].put(t, whole)
		f.start(i)
		f.agree(30 * time.Second)
	})
}

// lastCommand returns the last entry of the log that contains commands.
func (f *faultyStore) lastCommand(t *testing.T) *raft.Log {
	t.Helper()
	last, err := f.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for index := last; ; index-- {
		l := new(raft.Log)
		if err := f.GetLog(index, l); err != nil {
			t.Fatal(err)
		}
		if l.Type == raft.LogCommand {
			return l
		}
	}
}

// put replaces the log's entry at the index of l.
func (f *faultyStore) put(t *testing.T, l *raft.Log) {
	t.Helper()
	if err := f.InmemStore.StoreLog(l); err != nil {
		t.Fatal(err)
	}
}
