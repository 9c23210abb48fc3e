package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StopOrigin is the kind of origin of a stop: one of three parts of the system, or an operator. Each kind has its own
// rate limit (R27).
type StopOrigin string

// The origins.
const (
	ByDrain       StopOrigin = "drain"
	ByPreemption  StopOrigin = "preemption"
	ByRescheduler StopOrigin = "rescheduler"
	ByOperator    StopOrigin = "operator"
)

// StopOrigins lists all origins.
func StopOrigins() []StopOrigin {
	return []StopOrigin{ByDrain, ByPreemption, ByRescheduler, ByOperator}
}

// Valid reports whether k is in the closed set.
func (k StopOrigin) Valid() bool { return slices.Contains(StopOrigins(), k) }

// String implements fmt.Stringer.
func (k StopOrigin) String() string { return string(k) }

// Setting returns the name of the setting that holds the actor's rate.
func (k StopOrigin) Setting() string { return "rate_" + string(k) }

// StoppedBy returns the kind of actor whose rate limit counts a stop for this cause; "" if none does.
func (c Cause) StoppedBy() StopOrigin {
	switch c {
	case CauseNodeDraining:
		return ByDrain
	case CausePreempted:
		return ByPreemption
	case CauseRebalance, CauseAffinity, CauseNodeNotReady, CauseCheckFailed:
		return ByRescheduler
	case CauseUser:
		return ByOperator
	}
	return ""
}

// ActorRate allows one kind of actor to begin Max stops within any Window, in the whole cluster. The zero value means
// no limit. JSON and files have a rate as a string: "5/1m", or "none".
type ActorRate struct {
	Max    int      `cbor:"1,keyasint,omitempty"`
	Window Duration `cbor:"2,keyasint,omitempty"`
}

// String returns a rate as settings show it: "5/1m", or "none".
func (r ActorRate) String() string {
	if r == (ActorRate{}) {
		return "none"
	}
	return fmt.Sprintf("%d/%s", r.Max, r.Window)
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (r ActorRate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON.
func (r *ActorRate) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*r = ActorRate{}
		return nil
	}
	most, window, ok := strings.Cut(string(text), "/")
	n, err := strconv.Atoi(most)
	d, bad := ParseDuration(window)
	if !ok || err != nil || bad != nil || n < 1 || n > maxRate || d < Second || d == Forever {
		return fmt.Errorf("%q is no rate: write a number of stops and a window of at least 1s, such as 5/1m, or none", text)
	}
	*r = ActorRate{Max: n, Window: d}
	return nil
}

func (r ActorRate) valid() bool {
	return r == ActorRate{} || r.Max >= 1 && r.Max <= maxRate && r.Window >= Second && r.Window != Forever
}

// checkRates refuses rates that are out of range.
func (c *Settings) checkRates() *Error {
	for _, k := range StopOrigins() {
		if !c.ActorRate(k).valid() {
			return Refuse(CodeInvalid, "%s: max must be 1 to %d and the window at least 1s, or none", k.Setting(), maxRate)
		}
	}
	return nil
}

// ActorRate returns the rate of one kind of actor.
func (c *Settings) ActorRate(k StopOrigin) ActorRate {
	switch k {
	case ByDrain:
		return c.RateDrain
	case ByPreemption:
		return c.RatePreemption
	case ByRescheduler:
		return c.RateRescheduler
	case ByOperator:
		return c.RateOperator
	}
	return ActorRate{}
}
