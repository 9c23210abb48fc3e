package model

// Cause names, in a closed set, why something was done. Every decision carries one.
type Cause string

// Valid reports whether c is in the closed set.
func (c Cause) Valid() bool {
	_, ok := c.Known()
	return ok
}

// Known returns the cause as a constant of this program, and whether it is in the closed set. Store the constant in
// rows: the cause as it was decoded keeps the entry's bytes in memory.
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

// Voluntary reports whether a stop for this cause is a choice of the system or an operator, so that it counts for
// rates.
func (c Cause) Voluntary() bool {
	switch c {
	case CauseRollout, CauseNodeDraining, CauseUser, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement,
		CauseNodeNotReady, CauseCheckFailed:
		return true
	}
	return false
}

// IsMove reports whether the cause is a move of the rescheduler.
func (c Cause) IsMove() bool { return c == CauseRebalance || c == CauseAffinity }
