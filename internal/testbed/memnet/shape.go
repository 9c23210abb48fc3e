package memnet

import (
	"math/rand/v2"
	"time"
)

// Shape is how one direction between two hosts is worse than the rest of the network. The zero value is as good as the
// rest.
type Shape struct {
	// Delay is added to that of SetDelay.
	Delay time.Duration
	// Jitter is the most that chance adds to Delay, for each packet by itself: what was sent first may then arrive
	// last. A stream keeps its order.
	Jitter time.Duration
	// Duplicate is the share (0 to 1) of packets that arrive twice, each after a time of its own. Streams hold nothing
	// twice.
	Duplicate float64
	// BytesPerSecond is how much the link sends; 0 = any amount at once. Each packet and each stream has the link for
	// itself.
	BytesPerSecond int
}

// Shape makes what from sends to to from now on as bad as s says; the zero value, Mend and Heal end that. What is under
// way stays so.
func (n *Net) Shape(from, to string, s Shape) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s == (Shape{}) {
		delete(n.shapes, link{from, to})
		return
	}
	n.shapes[link{from, to}] = s
}

// Seed starts the generator of everything that is left to chance: loss, jitter and duplicates. Default 1.
func (n *Net) Seed(seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.random = rand.New(rand.NewPCG(seed, seed))
}

// travel is how long something that is sent now is under way; n.mu is held.
func (n *Net) travel(from, to string) time.Duration {
	s := n.shapes[link{from, to}]
	d := n.delay + s.Delay
	if s.Jitter > 0 {
		d += time.Duration(n.random.Int64N(int64(s.Jitter) + 1))
	}
	return d
}

// sending is how long the link needs for so many bytes; n.mu is held.
func (n *Net) sending(from, to string, bytes int) time.Duration {
	rate := n.shapes[link{from, to}].BytesPerSecond
	if rate <= 0 {
		return 0
	}
	return time.Duration(bytes) * time.Second / time.Duration(rate)
}

// arrivals are the times after which a packet arrives: once or twice; n.mu is held.
func (n *Net) arrivals(from, to string, bytes int) []time.Duration {
	sending := n.sending(from, to, bytes)
	out := []time.Duration{n.travel(from, to) + sending}
	if share := n.shapes[link{from, to}].Duplicate; share > 0 && n.random.Float64() < share {
		out = append(out, n.travel(from, to)+sending)
	}
	return out
}
