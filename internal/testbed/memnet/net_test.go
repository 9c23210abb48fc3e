package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/internal/testbed/memnet"
)

// pair connects host a to the address b:1. The result near is a's end of the stream, and far is b's end.
func pair(t *testing.T, n *memnet.Net) (near, far net.Conn) {
	t.Helper()
	l := n.Listen("b:1")
	taken := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		taken <- c
	}()
	near, err := n.Dial(t.Context(), "a", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	far = <-taken
	t.Cleanup(func() {
		l.Close()
		near.Close()
		far.Close()
	})
	return near, far
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// hear checks that the next bytes read from c are the given text. The parameter after is how long the read must take,
// exactly.
func hear(t *testing.T, c net.Conn, text string, after time.Duration) {
	t.Helper()
	began := time.Now()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("read %q, %v; want %q", got, err, text)
	}
	if took := time.Since(began); took != after {
		t.Errorf("%q came after %s, want %s", text, took, after)
	}
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		say(t, near, "one")
		say(t, near, "two")
		hear(t, far, "onetwo", 0)
		n.SetDelay(time.Millisecond)
		say(t, far, "back")
		hear(t, near, "back", time.Millisecond)

		near.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read past its deadline: %v", err)
		}
		near.SetReadDeadline(time.Time{})
		say(t, far, "last")
		far.Close()
		hear(t, near, "last", time.Millisecond)
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read after the end: %v", err)
		}
	})
}

// A stream buffers a limited number of bytes. If the peer doesn't read, the writer blocks at some point, as over TCP.
func TestStreamFillsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, memnet.New())
		near.SetWriteDeadline(time.Now().Add(time.Minute))
		sent := 0
		var err error
		for err == nil {
			var k int
			k, err = near.Write(make([]byte, 64<<10))
			sent += k
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || sent == 0 || sent > 4<<20 {
			t.Errorf("%d bytes went out, then %v", sent, err)
		}
		if got, err := io.CopyN(io.Discard, far, int64(sent)); err != nil {
			t.Errorf("%d of %d bytes arrived: %v", got, sent, err)
		}
	})
}

// A link with the fault Drop keeps back the data that is written to it, and delivers the data once the link is mended.
// A dial over this link blocks.
func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		n.Drop("a", "b")
		say(t, far, "this way works")
		hear(t, near, "this way works", 0)
		say(t, near, "held")
		time.AfterFunc(time.Minute, func() { n.Mend("b", "a") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "a", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial over a link that drops: %v", err)
		}
		hear(t, far, "held", 59*time.Second)
		if !n.Reach("a", "b") {
			t.Error("the link is mended and doesn't work")
		}
	})
}

// Streams break at once when their link is cut or a process at one end is killed. If a machine vanishes, its streams
// only fall silent. They break when the machine is back.
func TestCutAndKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		n.Cut("a", "b")
		for _, c := range []net.Conn{near, far} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read from a cut stream: %v", err)
			}
		}
		if _, err := n.Dial(t.Context(), "b", "a:1"); err == nil {
			t.Error("a cut link was dialled")
		}
		n.Heal()
		near, far = pair(t, n)
		say(t, near, "lost")
		n.Kill("b")
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read after the process died: %v", err)
		}
		if _, err := near.Write([]byte("x")); err == nil {
			t.Error("a write to a dead process went well")
		}
		if _, err := n.Dial(t.Context(), "a", "b:1"); err == nil {
			t.Error("a dead process took a connection")
		}
		n.Revive("b")
		near, far = pair(t, n)
		n.Vanish("b")
		say(t, near, "held")
		far.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a machine without power heard something: %v", err)
		}
		n.Revive("b")
		if _, err := near.Write([]byte("x")); err == nil {
			t.Error("a stream to before the reboot works")
		}
	})
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		a, b := n.Packets("10.0.0.1:1"), n.Packets("10.0.0.2:1")
		defer a.Shutdown()
		defer b.Shutdown()
		count := func(sent int) (got int) {
			for range sent {
				if _, err := a.WriteTo([]byte("x"), "10.0.0.2:1"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			for len(b.PacketCh()) > 0 {
				<-b.PacketCh()
				got++
			}
			return got
		}
		if got := count(100); got != 100 {
			t.Errorf("%d of 100 arrived", got)
		}
		n.Drop("10.0.0.1", "10.0.0.2")
		if got := count(100); got != 0 {
			t.Errorf("%d of 100 arrived over a link that drops", got)
		}
		n.Heal()
		n.Lose(0.5, 1)
		if got := count(200); got < 50 || got > 150 {
			t.Errorf("%d of 200 arrived, half should be lost", got)
		}
	})
}
