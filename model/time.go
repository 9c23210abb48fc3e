package model

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Time is a point in cluster time, in milliseconds. Cluster time never goes back, and does not advance while no server
// runs. It does not depend on the wall clock, so a wall clock that jumps can't trigger a deadline.
type Time int64

// Never is later than every other time. A wake-up time of Never means that only a change ends the wait.
const Never Time = 1<<63 - 1

// Add returns t + d. It returns Never if t is Never, if d is Forever, or if the sum overflows.
func (t Time) Add(d Duration) Time {
	if t == Never || d == Forever || d > 0 && t > Never-Time(d) {
		return Never
	}
	return t + Time(d)
}

// Sub returns t - u.
func (t Time) Sub(u Time) Duration { return Duration(t - u) }

// Left returns how long it is from now until t, for people: rounded up to whole seconds, and 0 once t has come.
func (t Time) Left(now Time) Duration {
	if t == Never {
		return Forever
	}
	left := max(t.Sub(now), 0)
	if more := left % Second; more > 0 {
		left += Second - more
	}
	return left
}

// Duration is a length of cluster time in milliseconds. In JSON and job files it is a string with units: "30s".
type Duration int64

// Units of Duration. Files and JSON write Forever as "forever", or as "none" for a deadline.
const (
	Millisecond Duration = 1
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
	Forever     Duration = 1<<63 - 1
)

// String returns d as job files write it: "1h30m", "500ms", "0s", "forever".
func (d Duration) String() string {
	switch {
	case d == Forever:
		return "forever"
	case d == 0:
		return "0s"
	case d < 0:
		return "-" + (-max(d, -Forever)).String()
	}
	var b strings.Builder
	for _, u := range [...]struct {
		unit Duration
		name string
	}{{Hour, "h"}, {Minute, "m"}, {Second, "s"}, {Millisecond, "ms"}} {
		if n := d / u.unit; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.unit
		}
	}
	return b.String()
}

// ParseDuration reads what String writes, except for negative durations. It also accepts "none" for Forever, the unit
// d, and decimal amounts such as "1.5s". A number without a unit and a duration of more than 100 years are errors.
func ParseDuration(text string) (Duration, error) {
	if text == "forever" || text == "none" {
		return Forever, nil
	}
	rest, total := text, 0.0
	for rest != "" {
		i := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if i <= 0 {
			return 0, fmt.Errorf("%q is not a duration; write a number with a unit, such as \"30s\" or \"5m\"", text)
		}
		n, err := strconv.ParseFloat(rest[:i], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration; write a number with a unit, such as \"30s\" or \"5m\"", text)
		}
		rest = rest[i:]
		j := strings.IndexFunc(rest, func(r rune) bool { return r >= '0' && r <= '9' || r == '.' })
		if j < 0 {
			j = len(rest)
		}
		unit, ok := durationUnit(rest[:j])
		if !ok {
			return 0, fmt.Errorf("%q has the unknown unit %q; the units are ms, s, m, h and d", text, rest[:j])
		}
		total += n * float64(unit)
		rest = rest[j:]
	}
	if text == "" || total > float64(100*365*24*Hour) {
		return 0, fmt.Errorf("%q is not a duration between 0s and 100 years", text)
	}
	return Duration(math.Round(total)), nil
}

func durationUnit(name string) (Duration, bool) {
	switch name {
	case "ms":
		return Millisecond, true
	case "s":
		return Second, true
	case "m":
		return Minute, true
	case "h":
		return Hour, true
	case "d":
		return 24 * Hour, true
	}
	return 0, false
}

// MarshalText implements encoding.TextMarshaler, for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := ParseDuration(string(text))
	if err == nil {
		*d = v
	}
	return err
}
