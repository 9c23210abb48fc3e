package model

// Cause is the reason of a decision. Every decision has one. The set of causes is closed.
type Cause string

// Valid reports whether c is one of the causes in code.go.
func (c Cause) Valid() bool {
	_, ok := c.Known()
	return ok
}

// Known returns the constant of this program that equals c, and true. If there is no such constant, Known returns c and
// false. Rows store the constant, because a decoded string keeps the bytes of its whole log entry in memory.
func (c Cause) Known() (Cause, bool) {
	for _, one := range [...]Cause{
		CauseScaleUp, CauseScaleDown, CauseRollout, CauseNodeDraining, CauseNodeDisabled, CauseNodeOffline, CauseUser,
		CauseCrashLoop, CauseStartTimeout,
		CauseOOM, CauseCheckFailed, CauseDrainTimeout, CauseJobStopped, CauseFenced, CausePreempted, CauseRebalance,
		CauseAffinity, CauseRoleReplacement,
		CauseRestored, CauseNodeNotReady,
	} {
		if c == one {
			return one, true
		}
	}
	return c, false
}

// Voluntary reports whether a stop for this cause is voluntary, so that rates limit it. Stops because a job is stopped
// or scaled down are not voluntary.
func (c Cause) Voluntary() bool {
	switch c {
	case CauseRollout, CauseNodeDraining, CauseUser, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement,
		CauseNodeNotReady, CauseCheckFailed:
		return true
	}
	return false
}

// IsMove reports whether the rescheduler moves instances for this cause.
func (c Cause) IsMove() bool { return c == CauseRebalance || c == CauseAffinity }
