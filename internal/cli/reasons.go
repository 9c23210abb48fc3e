package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// listedAtMost is the largest number of instances that are listed one by one. A longer list is shortened.
const listedAtMost = 20

// sumsOf combines blockers that have the same reason.
func sumsOf(blockers []api.DrainBlocker) []model.BlockerSum {
	all := make([]model.Blocker, len(blockers))
	for i, b := range blockers {
		all[i] = model.Blocker{Code: b.Code, Instance: b.Instance, Volume: b.Volume, Message: b.Message, Unblock: b.Unblock}
	}
	return model.SumBlockers(all)
}

// sumText formats a reason as one line: the instances or volumes that it concerns, why they are blocked, and what to
// do.
func sumText(sum model.BlockerSum) string {
	text := ""
	for _, part := range [...]struct{ names, told string }{{sum.Who(), string(sum.Instance)},
		{sum.What(), string(sum.Volume)}} {
		if part.names != "" && (part.told == "" || !strings.Contains(sum.Message, part.told)) {
			text += part.names + ": "
		}
	}
	return text + blockerText(sum.Code, sum.Message, sum.Unblock)
}

func blockerText(code model.Code, message, unblock string) string {
	text := string(code)
	if message != "" {
		text += ": " + message
	}
	if unblock != "" {
		text += "; " + unblock
	}
	return text
}

// reasonKey returns a text that is equal for reasons that differ only in times or numbers. A change of those is not
// worth a new line while a drain is followed.
func reasonKey(sum model.BlockerSum) string {
	words := strings.Fields(string(sum.Code) + " " + sum.Message)
	for i, word := range words {
		if word[0] >= '0' && word[0] <= '9' {
			words[i] = "#"
		}
	}
	return strings.Join(words, " ")
}

// newReasons returns the reasons of the blockers that are in the list after but not in the list before. It skips
// blockers for which passing returns true. It also skips a reason that differs from an earlier one only in numbers.
func newReasons(before, after []api.DrainBlocker) []model.BlockerSum {
	known, named := map[string]bool{}, map[model.Blocker]bool{}
	for _, sum := range sumsOf(before) {
		known[reasonKey(sum)] = true
	}
	for _, b := range before {
		known[reasonKey(sumsOf([]api.DrainBlocker{b})[0])] = true
		named[model.Blocker{Code: b.Code, Instance: b.Instance, Volume: b.Volume}] = true
	}
	fresh := slices.DeleteFunc(slices.Clone(after), func(b api.DrainBlocker) bool {
		return passing(b.Code) || named[model.Blocker{Code: b.Code, Instance: b.Instance, Volume: b.Volume}]
	})
	return slices.DeleteFunc(sumsOf(fresh), func(sum model.BlockerSum) bool { return known[reasonKey(sum)] })
}

// passing reports whether a blocker with this code appears in every normal drain and disappears by itself.
func passing(code model.Code) bool {
	return code == model.CodeReplacementPending || code == model.CodeStopping
}

// blockersOf returns the blockers in a forecast.
func blockersOf(forecast []api.DrainForecast) []api.DrainBlocker {
	var all []api.DrainBlocker
	for _, f := range forecast {
		if f.Blocker != "" {
			all = append(all,
				api.DrainBlocker{Code: f.Blocker, Instance: f.Instance, Volume: f.Volume, Message: f.Message, Unblock: f.Unblock})
		}
	}
	return all
}

// forecastReasons prints why instances of a forecast can't leave now, and the notes about the other instances. It
// prints equal texts once.
func forecastReasons(p *term.Page, indent string, forecast []api.DrainForecast) {
	for _, sum := range sumsOf(blockersOf(forecast)) {
		p.Line("%s%s", indent, sumText(sum))
	}
	told := map[string]bool{}
	for _, f := range forecast {
		text := fmt.Sprintf("%s: %s", f.Group, f.Note)
		if f.Blocker == "" && f.Note != "" && !told[text] {
			told[text] = true
			p.Line("%s%s", indent, text)
		}
	}
}

// forecastSums returns a summary of a forecast on one line: how many instances have each outcome, and about how long it
// takes until the last one is gone.
func forecastSums(forecast []api.DrainForecast) string {
	var parts []string
	longest := model.Duration(0)
	for _, f := range forecast {
		longest = max(longest, f.After)
	}
	for _, one := range [...]struct {
		action model.Action
		word   string
	}{
		{model.ActionMove, "move"}, {model.ActionStopFirst, "stop first, then move"}, {model.ActionStop, "stop"},
		{model.ActionLeave, "stay"}, {model.ActionWait, "wait"},
	} {
		n := 0
		for _, f := range forecast {
			n += map[bool]int{true: 1}[f.Action == one.action]
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, one.word))
		}
	}
	if longest > 0 {
		parts = append(parts, "about "+term.Span(time.Duration(longest)*time.Millisecond))
	}
	return strings.Join(parts, ", ")
}

// forecastCount is an outcome in a forecast, with the number of instances that have it.
type forecastCount struct {
	api.DrainForecast
	count int
}

// countForecast groups the instances of a forecast by outcome.
func countForecast(forecast []api.DrainForecast) []forecastCount {
	var all []forecastCount
	at := map[api.DrainForecast]int{}
	for _, f := range forecast {
		alike := api.DrainForecast{Node: f.Node, Group: f.Group, Class: f.Class, Action: f.Action,
			Target: f.Target, Blocker: f.Blocker}
		if f.Member != "" {
			alike.Member = "each its own" // only whether an instance keeps an identity matters, not which one
		}
		i, known := at[alike]
		if !known {
			i = len(all)
			at[alike], all = i, append(all, forecastCount{alike, 0})
		}
		all[i].count++
	}
	return all
}

// ownReasons returns the reasons of one word that are not in driver.Reason. reasonText must not take them for ids.
func ownReasons() []string {
	return []string{model.ReasonEnded, "gone_from_node", "unknown", string(model.CauseNodeOffline),
		string(model.CauseCrashLoop)}
}

// reasonText describes why an instance is in its state. If the reason is only an id, that of the drain or of the
// preempting instance, reasonText adds what the id means. If a program ended by itself, it adds the exit code.
func reasonText(i api.Instance) string {
	if i.ExitCode != nil && endedItself(i.Reason) {
		return fmt.Sprintf("%s (exit code %d)", i.Reason, *i.ExitCode)
	}
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

// endedItself reports whether a reason says that the program ended by itself, so that its exit code and its logs tell
// more.
func endedItself(reason string) bool {
	return reason == driver.ReasonExited.String() || reason == driver.ReasonSignaled.String() ||
		reason == string(model.CauseCrashLoop)
}

// whyChanged describes what an event changed and, if known, the reason: "ready -> failed (fenced)". For a new leader it
// adds the term instead. For a change of settings it lists the data of the event.
func whyChanged(e api.Event) string {
	switch e.Type {
	case model.EventSettings:
		return eventData(e)
	case model.EventLeader:
		return changeText(e) + " (term " + e.Data["term"] + ")"
	case model.EventStatus, model.EventDrainPhase, model.EventDeployment, model.EventHold,
		model.EventVolume, model.EventNodeState:
		if reason := e.Data["reason"]; reason != "" {
			return changeText(e) + " (" + reason + ")"
		}
	}
	return changeText(e)
}

// unplacedOf describes instances of a job that no node can take.
type unplacedOf struct {
	job   string
	there bool // the servers know the job
	count int
	why   string
	codes []model.Code
}

func (u *unplacedOf) refusal() *model.Error {
	hint := "they are placed when there is room"
	if code := u.codes[0]; !slices.ContainsFunc(u.codes, func(c model.Code) bool { return c != code }) {
		hint = term.First(unplacedHints[code], hint)
	}
	if u.there {
		hint += fmt.Sprintf("; see: outspan why %s", u.job)
	}
	return model.Refuse(codeNotAllPlaced, "%d of job %s can't be placed now: %s", u.count, u.job, u.why).
		WithHint("%s", hint)
}

// unplacedHints has hints for codes whose cause is not a lack of room.
var unplacedHints = map[model.Code]string{
	model.CodeConstraint: "change the constraint, or have a node meet it, such as with: outspan node " +
		"label NODE KEY=VALUE",
	model.CodeNoRuntime: "install containerd on a node; which nodes have it: outspan node ls -o wide",
	model.CodeRuntimeDown: "start containerd on the node, or give the node what it lacks, as `outspan " +
		"node status NODE` says",
	model.CodeNoNetwork: "install what a node lacks for it, as `outspan node status NODE` says, or use " +
		"network = \"host\" in the job file",
	model.CodeNoNodes:      "add a node, or uncordon one; list them with: outspan node ls",
	model.CodeAntiAffinity: "they are placed when there is a node for each, or another value of the distinct attribute",
	model.CodeImagePull: "see to the registry, or to the nodes' access to it; it is tried again within 5 minutes, and " +
		"at once after: outspan job restart JOB",
	model.CodeRetryLimit: "fix what makes it fail, and run a new version",
}
