package series

import (
	"math"
	"time"
)

// layout says how much a ring keeps.
type layout struct {
	step   time.Duration
	width  int // values of a sample
	blocks int // kept at most
	block  int // samples of a block
}

// ring keeps the newest samples of a fixed number of values, at multiples of a step of wall time. A step without a
// sample is a gap. Memory is allocated by blocks, as samples come. Not safe for concurrent use.
type ring struct {
	layout
	kept []block // by the number of the block, modulo the number of blocks
}

// block has the samples of some steps in a row, one value after the other.
type block struct {
	at     int64 // its number since 1970; meaningless without values
	values []float32
}

func newRing(l layout) ring { return ring{layout: l} }

func unknown() float32 { return float32(math.NaN()) }

func isUnknown(v float32) bool { return v != v }

// slot returns the number of the step, since 1970, that has a point in time.
func (l layout) slot(at time.Time) int64 { return at.UnixMilli() / l.step.Milliseconds() }

// begin returns when a step begins.
func (l layout) begin(slot int64) time.Time {
	return time.UnixMilli(slot * l.step.Milliseconds()).UTC()
}

// size returns the number of steps that a ring keeps at least, beside the newest one.
func (l layout) size() int64 { return int64((l.blocks - 1) * l.block) }

// at returns the block of a step and the step's place in it. If there is no such block, it returns nil, unless add is
// true and the block is not older than the one in its place.
func (r *ring) at(slot int64, add bool) (values []float32, place int) {
	number := slot / int64(r.block)
	place = int(slot % int64(r.block))
	if slot < 0 {
		return nil, 0
	}
	if r.kept == nil {
		if !add {
			return nil, 0
		}
		r.kept = make([]block, r.blocks)
	}
	b := &r.kept[number%int64(r.blocks)]
	switch {
	case b.values != nil && b.at == number:
	case !add || b.values != nil && b.at > number:
		return nil, 0
	default:
		if b.values == nil {
			b.values = make([]float32, r.width*r.block)
		}
		b.at = number
		for i := range b.values {
			b.values[i] = unknown()
		}
	}
	return b.values, place
}

// set writes a value. It does nothing if the step is older than what the ring keeps.
func (r *ring) set(slot int64, column int, v float32) {
	if values, place := r.at(slot, true); values != nil {
		values[column*r.block+place] = v
	}
}

// get returns a value, which is unknown in a gap.
func (r *ring) get(slot int64, column int) float32 {
	values, place := r.at(slot, false)
	if values == nil {
		return unknown()
	}
	return values[column*r.block+place]
}

// fill writes a value where none is known.
func (r *ring) fill(slot int64, column int, v float32) {
	if !isUnknown(v) && isUnknown(r.get(slot, column)) {
		r.set(slot, column, v)
	}
}

// over returns one value for the steps from first up to before end: the mean of those that are known, or the largest.
func (r *ring) over(first, end int64, column int, largest bool) float32 {
	sum, most, n := 0.0, unknown(), 0
	for slot := first; slot < end; slot++ {
		v := r.get(slot, column)
		if isUnknown(v) {
			continue
		}
		sum, n = sum+float64(v), n+1
		if n == 1 || v > most {
			most = v
		}
	}
	if n == 0 || largest {
		return most
	}
	return float32(sum / float64(n))
}

// bytes returns how much memory the samples take.
func (r *ring) bytes() (n int) {
	for _, b := range r.kept {
		n += 4 * cap(b.values)
	}
	return n
}
