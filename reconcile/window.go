package reconcile

import (
	"time"

	"github.com/adhocore/gronx"

	"github.com/outspan/outspan/model"
)

// windowOpen reports whether the wall time, in UTC, is in a minute that the cron expression matches. If not, it returns
// the cluster time of the next such minute, or Never if there is none. An empty expression always matches, and an
// invalid one never does.
func (p *pass) windowOpen(expression string) (open bool, next model.Time) {
	if expression == "" {
		return true, 0
	}
	// WallAt uses only the state and the cluster time, so a decision stays a function of its input.
	wall := time.UnixMilli(p.in.State.WallAt(p.in.Now)).UTC()
	minute := wall.Truncate(time.Minute)
	if due, err := gronx.New().IsDue(expression, minute); err != nil || due {
		return err == nil, model.Never
	}
	tick, err := gronx.NextTickAfter(expression, minute, false)
	if err != nil {
		return false, model.Never
	}
	return false, p.in.Now.Add(model.Duration(tick.Sub(wall).Milliseconds()))
}
