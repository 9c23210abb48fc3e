package memnet

import (
	"math/rand/v2"
	"time"
)

// Shape is how much worse than the rest of the network one direction between two hosts is. The zero value is as good as
// the rest.
type Shape struct {
	// Delay is added to that of SetDelay.
	Delay time.Duration
	// Jitter is the most that is randomly added to Delay, separately for each packet, so that packets may overtake each
	// other. A stream keeps its order.
	Jitter time.Duration
	// Duplicate is the share (0 to 1) of packets that arrive twice, each after its own travel time. Streams never repeat
	// data.
	Duplicate float64
	// BytesPerSecond is the bandwidth of the link; 0 = unlimited. Each packet and each stream has the full bandwidth.
	BytesPerSecond int
}

// Shape applies s to what from sends to to from now on. The zero value, Mend and Heal end that. What is already under
// way is not changed.
func (n *Net) Shape(from, to string, s Shape) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s == (Shape{}) {
		delete(n.shapes, link{from, to})
		return
	}
	n.shapes[link{from, to}] = s
}

// Seed seeds the generator for all random choices: loss, jitter and duplicates. Default 1.
func (n *Net) Seed(seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.random = rand.New(rand.NewPCG(seed, seed))
}

// travel returns how long something sent now travels. n.mu is held.
func (n *Net) travel(from, to string) time.Duration {
	s := n.shapes[link{from, to}]
	d := n.delay + s.Delay
	if s.Jitter > 0 {
		d += time.Duration(n.random.Int64N(int64(s.Jitter) + 1))
	}
	return d
}

// sending returns how long the link needs to send so many bytes. n.mu is held.
func (n *Net) sending(from, to string, bytes int) time.Duration {
	rate := n.shapes[link{from, to}].BytesPerSecond
	if rate <= 0 {
		return 0
	}
	return time.Duration(bytes) * time.Second / time.Duration(rate)
}

// arrivals returns the times after which a packet arrives: one, or two for a duplicate. n.mu is held.
func (n *Net) arrivals(from, to string, bytes int) []time.Duration {
	sending := n.sending(from, to, bytes)
	out := []time.Duration{n.travel(from, to) + sending}
	if share := n.shapes[link{from, to}].Duplicate; share > 0 && n.random.Float64() < share {
		out = append(out, n.travel(from, to)+sending)
	}
	return out
}
