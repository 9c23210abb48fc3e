package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StopOrigin says who began a stop: a drain, preemption, the rescheduler or an operator. The stops of each origin have
// their own rate limit (R27).
type StopOrigin string

// The origins of stops.
const (
	ByDrain       StopOrigin = "drain"
	ByPreemption  StopOrigin = "preemption"
	ByRescheduler StopOrigin = "rescheduler"
	ByOperator    StopOrigin = "operator"
)

// StopOrigins lists all origins of stops.
func StopOrigins() []StopOrigin {
	return []StopOrigin{ByDrain, ByPreemption, ByRescheduler, ByOperator}
}

// Valid reports whether k is one of StopOrigins.
func (k StopOrigin) Valid() bool { return slices.Contains(StopOrigins(), k) }

// String implements fmt.Stringer.
func (k StopOrigin) String() string { return string(k) }

// Setting returns the name of the setting that contains the rate limit of k.
func (k StopOrigin) Setting() string { return "rate_" + string(k) }

// StoppedBy returns the origin whose rate limit applies to stops for this cause, or "" if no such limit applies.
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

// ActorRate is a rate limit: within any Window, at most Max stops of one origin may begin in the whole cluster. The
// zero value means no limit. JSON and configuration files write a rate limit as a string: "5/1m", or "none".
type ActorRate struct {
	Max    int      `cbor:"1,keyasint,omitempty"`
	Window Duration `cbor:"2,keyasint,omitempty"`
}

// String returns r as settings show it: "5/1m", or "none".
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

func (c *Settings) checkRates() *Error {
	for _, k := range StopOrigins() {
		if !c.ActorRate(k).valid() {
			return Refuse(CodeInvalid, "%s: max must be 1 to %d and the window at least 1s, or none", k.Setting(), maxRate)
		}
	}
	return nil
}

// ActorRate returns the rate limit of one origin.
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
