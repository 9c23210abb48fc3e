package fsm

import "strings"

// Rescheduling is how the rescheduler works: a preset, with what the settings override in it.
type Rescheduling struct {
	On       bool     // otherwise nothing is moved unless an operator asks
	Gain     int      // least gain of a move, in points; 100 points are a whole node's memory, or the full weight of an affinity
	Reserve  int      // percent of what a budget allows to be down that moves leave untouched
	MinAge   Duration // younger instances stay
	Cooldown Duration // between two moves of one group
	Moves    int      // begun in any Cycle
	Cycle    Duration
	Window   string // cron expression in UTC: moves begin in minutes that match; empty = always
}

// Reschedulers are the values of the setting rescheduler.
func Reschedulers() []string { return []string{"off", "careful", "balanced", "eager"} }

// Rescheduling resolves the settings of the rescheduler. With off it is the preset balanced, not On: what an operator asks for is done by it.
func (c *Settings) Rescheduling() Rescheduling {
	r := Rescheduling{On: c.Rescheduler != "off", Gain: 10, Reserve: 50, MinAge: 10 * Minute, Cooldown: 30 * Minute, Moves: 5, Cycle: 60 * Second}
	switch c.Rescheduler {
	case "careful":
		r.Gain, r.Reserve, r.MinAge, r.Cooldown, r.Moves = 25, 100, 30*Minute, 2*Hour, 2
	case "eager":
		r.Gain, r.Reserve, r.MinAge, r.Cooldown, r.Moves = 5, 0, 5*Minute, 10*Minute, 10
	}
	override(&r.Gain, c.MoveGain)
	override(&r.MinAge, c.MoveMinAge)
	override(&r.Cooldown, c.MoveCooldown)
	override(&r.Moves, c.MovesPerCycle)
	override(&r.Cycle, c.MoveCycle)
	r.Window = c.MoveWindow
	return r
}

func override[T comparable](value *T, with T) {
	var zero T
	if with != zero {
		*value = with
	}
}

// checkRescheduler returns what is wrong with the settings of the rescheduler. That the window is a cron expression is checked where it is given; one that is none
// never opens.
func (c *Settings) checkRescheduler() *Error {
	for _, d := range [...]struct {
		name  string
		value Duration
	}{{"rescheduler_min_age", c.MoveMinAge}, {"rescheduler_cooldown", c.MoveCooldown}, {"rescheduler_cycle", c.MoveCycle}} {
		if d.value < 0 || d.value == Forever || d.value > 0 && d.value < 100*Millisecond {
			return Refuse(CodeInvalid, "%s is %s; it must be at least 100ms, or 0s for that of the preset", d.name, d.value)
		}
	}
	switch {
	case c.MovesPerCycle < 0 || c.MovesPerCycle > 1000:
		return Refuse(CodeInvalid, "rescheduler_moves is %d; it must be 1 to 1000, or 0 for that of the preset", c.MovesPerCycle)
	case c.MoveGain < 0 || c.MoveGain > 100:
		return Refuse(CodeInvalid, "rescheduler_gain is %d; it must be 1 to 100, or 0 for that of the preset", c.MoveGain)
	case len(c.MoveWindow) > 100 || c.MoveWindow != "" && len(strings.Fields(c.MoveWindow)) != 5:
		return Refuse(CodeInvalid, "rescheduler_window %q is no cron expression of five fields", c.MoveWindow).
			WithHint(`write minute, hour, day, month and weekday in UTC, such as "* 1-5 * * *"; empty = always`)
	}
	return nil
}
