package memnet

import (
	"math/rand/v2"
	"time"
)

// Shape makes one direction between two hosts worse than the rest of the network. The zero value changes nothing.
type Shape struct {
	// Delay is added to the travel time that Net.SetDelay sets.
	Delay time.Duration
	// Jitter is the maximum of a random time that is added to Delay. The random time differs for each packet, so packets
	// may overtake each other. A stream keeps its order.
	Jitter time.Duration
	// Duplicate is the share (0 to 1) of packets that arrive twice, each with its own travel time. Streams don't repeat
	// data.
	Duplicate float64
	// BytesPerSecond is the bandwidth in this direction; 0 means unlimited. Each packet and each stream gets the full
	// bandwidth.
	BytesPerSecond int
}

// Shape applies a shape to everything sent from one host to another from now on. Packets and data that are already on
// their way are not affected. The zero value, Mend and Heal remove a shape.
func (n *Net) Shape(from, to string, s Shape) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s == (Shape{}) {
		delete(n.shapes, link{from, to})
		return
	}
	n.shapes[link{from, to}] = s
}

// Seed seeds the generator of all random choices, which are losses, jitter and duplicates. The default seed is 1.
func (n *Net) Seed(seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.random = rand.New(rand.NewPCG(seed, seed))
}

// travel returns the travel time of something sent now. n.mu is held.
func (n *Net) travel(from, to string) time.Duration {
	s := n.shapes[link{from, to}]
	d := n.delay + s.Delay
	if s.Jitter > 0 {
		d += time.Duration(n.random.Int64N(int64(s.Jitter) + 1))
	}
	return d
}

// sending returns how long the link takes to send this many bytes. n.mu is held.
func (n *Net) sending(from, to string, bytes int) time.Duration {
	rate := n.shapes[link{from, to}].BytesPerSecond
	if rate <= 0 {
		return 0
	}
	return time.Duration(bytes) * time.Second / time.Duration(rate)
}

// arrivals returns the delays after which a packet arrives. There are two delays if the packet is duplicated, and
// otherwise one. n.mu is held.
func (n *Net) arrivals(from, to string, bytes int) []time.Duration {
	sending := n.sending(from, to, bytes)
	out := []time.Duration{n.travel(from, to) + sending}
	if share := n.shapes[link{from, to}].Duplicate; share > 0 && n.random.Float64() < share {
		out = append(out, n.travel(from, to)+sending)
	}
	return out
}
