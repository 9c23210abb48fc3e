package cli

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// ownReasons are what the servers note of an instance by themselves.
func ownReasons() []string {
	return []string{model.ReasonEnded, "gone_from_node", "unknown", string(model.CauseNodeOffline), string(model.CauseCrashLoop)}
}

// reasonText says in words why an instance is as it is. For a stop the servers keep what asked for it, which may be the
// bare id of a drain or of another instance.
func reasonText(i api.Instance) string {
	by, more, several := strings.Cut(i.Reason, "; ")
	by, bypassed := strings.CutPrefix(by, "budget bypassed: ")
	if by == "" || strings.Contains(by, " ") || driver.Reason(by).Valid() || slices.Contains(ownReasons(), by) {
		return i.Reason
	}
	switch {
	case i.StopCause == model.CausePreempted:
		by = "makes room for instance " + by
	case i.StopCause == model.CauseDrainTimeout:
		by = "drain " + by + " is out of time"
	case i.StopCause == model.CauseNodeDraining:
		by = "drain " + by
	default:
		return i.Reason
	}
	if bypassed {
		by = "budget bypassed: " + by
	}
	if several {
		by += "; " + more
	}
	return by
}

// whyChanged is what an event changed, and of a state why: "ready -> failed (fenced)". Of settings it is which ones.
func whyChanged(e api.Event) string {
	switch e.Type {
	case model.EventSettings:
		return eventData(e)
	case model.EventLeader:
		return changeText(e) + " (term " + e.Data["term"] + ")"
	case model.EventStatus, model.EventDrainPhase, model.EventDeployment, model.EventHold, model.EventVolume, model.EventNodeState:
		if reason := e.Data["reason"]; reason != "" {
			return changeText(e) + " (" + reason + ")"
		}
	}
	return changeText(e)
}
