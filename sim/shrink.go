package sim

import "time"

// Shrink removes actions from a failing history, as long as the rest still breaks the same rule. Shrink stops when no
// single action can be removed, or when limit has passed in real time. It returns the shortest history that it found,
// with at most the given number of lines of trace. If the history does not fail again, Shrink returns failed.
func Shrink(failed Result, lines int, limit time.Duration) Result {
	end := time.Now().Add(limit)
	cfg := Config{Seed: failed.Seed, Scenario: failed.Scenario, Keep: make([]bool, len(failed.Schedule)), Lines: lines}
	for i := range cfg.Keep {
		cfg.Keep[i] = i <= failed.FailedAt
	}
	best := failed
	try := func(keep []bool) bool {
		r := Run(Config{Seed: cfg.Seed, Scenario: cfg.Scenario, Keep: keep, Lines: lines})
		if r.Failure == nil || r.Failure.Invariant != failed.Failure.Invariant {
			return false
		}
		cfg.Keep, best = keep, r
		return true
	}
	if !try(cfg.Keep) {
		return best
	}
	for size := max(failed.FailedAt/2, 1); time.Now().Before(end); size = max(size/2, 1) {
		if !leaveOut(&cfg, size, end, try) && size == 1 {
			break
		}
	}
	best.Schedule = nil
	for i, keep := range cfg.Keep {
		if keep {
			best.Schedule = append(best.Schedule, failed.Schedule[i])
		}
	}
	return best
}

// leaveOut tries to remove actions, size of them at a time. It reports whether it removed any.
func leaveOut(cfg *Config, size int, end time.Time, try func([]bool) bool) bool {
	found := false
	for from := 0; from < len(cfg.Keep) && time.Now().Before(end); {
		keep, left := append([]bool(nil), cfg.Keep...), size
		next := from
		for ; next < len(keep) && left > 0; next++ {
			if keep[next] {
				keep[next] = false
				left--
			}
		}
		if left < size && try(keep) {
			found = true
		}
		from = next
	}
	return found
}
