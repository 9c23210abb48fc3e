package memnet_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
)

// sendNumbered sends packets numbered from 0 to many-1, one millisecond apart. It returns the numbers of the packets
// that have arrived one minute after the last one was sent, in the order of their arrival.
func sendNumbered(t *testing.T, n *memnet.Net, many int) (got []byte) {
	t.Helper()
	a, b := n.Packets("10.0.0.1:1"), n.Packets("10.0.0.2:1")
	defer a.Shutdown()
	defer b.Shutdown()
	for i := range many {
		if _, err := a.WriteTo([]byte{byte(i)}, "10.0.0.2:1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Minute)
	for len(b.PacketCh()) > 0 {
		got = append(got, (<-b.PacketCh()).Buf[0])
	}
	return got
}

func TestJitterReordersPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.Shape("10.0.0.1", "10.0.0.2", memnet.Shape{Jitter: 20 * time.Millisecond})
		got := sendNumbered(t, n, 100)
		if len(got) != 100 || slices.IsSorted(got) {
			t.Errorf("%d of 100 packets arrived, in order: %v; want all, in another order", len(got), slices.IsSorted(got))
		}
		n.Heal()
		if got := sendNumbered(t, n, 100); len(got) != 100 || !slices.IsSorted(got) {
			t.Errorf("after Heal %d of 100 arrived, in order: %v", len(got), slices.IsSorted(got))
		}
	})
}

func TestDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.Seed(7)
		n.Shape("10.0.0.1", "10.0.0.2", memnet.Shape{Duplicate: 0.5, Delay: time.Millisecond})
		got := sendNumbered(t, n, 100)
		if len(got) < 120 || len(got) > 180 {
			t.Errorf("100 packets arrived %d times, half of them should twice", len(got))
		}
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != 100 {
			t.Errorf("%d different packets arrived, 100 were sent", len(got))
		}
		n.Shape("10.0.0.1", "10.0.0.2", memnet.Shape{})
		if got := sendNumbered(t, n, 100); len(got) != 100 {
			t.Errorf("100 packets arrived %d times over a good link", len(got))
		}
	})
}

// A delay, a bandwidth limit or jitter makes a stream late or slow, but its bytes arrive in order. The opposite
// direction is not affected.
func TestShapedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		n.Shape("a", "b", memnet.Shape{Delay: time.Second})
		say(t, near, "late")
		hear(t, far, "late", time.Second)
		say(t, far, "at once")
		hear(t, near, "at once", 0)

		n.Shape("a", "b", memnet.Shape{BytesPerSecond: 10})
		say(t, near, "five.")
		say(t, near, "and five..")
		hear(t, far, "five.", 500*time.Millisecond)
		hear(t, far, "and five..", time.Second)

		n.Shape("a", "b", memnet.Shape{Jitter: time.Second})
		want := make([]byte, 100)
		for i := range want {
			want[i] = byte('a' + i%26)
			say(t, near, string(want[i]))
		}
		got := make([]byte, 0, len(want))
		for len(got) < len(want) {
			part := make([]byte, len(want))
			k, err := far.Read(part)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, part[:k]...)
		}
		if string(got) != string(want) {
			t.Errorf("read %q, %q was written", got, want)
		}
	})
}

// A dial takes one trip in each direction, and each trip has the delay of its direction.
func TestShapedDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.Shape("a", "b", memnet.Shape{Delay: time.Second})
		n.Shape("b", "a", memnet.Shape{Delay: time.Minute})
		began := time.Now()
		pair(t, n)
		if took := time.Since(began); took != time.Minute+time.Second {
			t.Errorf("the dial took %s", took)
		}
	})
}
