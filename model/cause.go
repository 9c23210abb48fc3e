package model

// Cause names, in a closed set, why something was done. Every decision carries one.
type Cause string

// Valid reports whether c is in the closed set.
func (c Cause) Valid() bool {
	_, ok := c.Known()
	return ok
}

// Known returns the cause as a constant of this program, so that a row that keeps it does not keep the bytes that it
// was decoded from.
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

// Voluntary reports whether a stop for this cause is the system's or an operator's choice, so that it uses rates.
func (c Cause) Voluntary() bool {
	switch c {
	case CauseRollout, CauseNodeDraining, CauseUser, CausePreempted, CauseRebalance, CauseAffinity, CauseRoleReplacement,
		CauseNodeNotReady, CauseCheckFailed:
		// of one that failed nothing is spent
		return true
	}
	return false
}

// IsMove reports whether a cause is one of the rescheduler's.
func (c Cause) IsMove() bool { return c == CauseRebalance || c == CauseAffinity }
