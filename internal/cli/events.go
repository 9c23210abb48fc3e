package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
)

type eventFlags struct {
	follow   bool
	since    string
	tail     int
	types    []string
	subjects []string
}

// check refuses a --since that is a number without a unit, because the number could mean seconds, minutes or the index
// of an event. It accepts 0, which means the oldest event.
func (f *eventFlags) check() error {
	if bareNumber.MatchString(f.since) && strings.Trim(f.since, "0") != "" {
		return term.Usage("--since %s has no unit", f.since).
			WithHint("write %[1]ss or %[1]sm for a time before now, or the whole id of an event, such as %[1]s.0; 0 "+
				"stands for the oldest", f.since)
	}
	return nil
}

func (f *eventFlags) options() client.EventOptions {
	o := client.EventOptions{Types: f.types, Subjects: f.subjects}
	switch {
	case eventID.MatchString(f.since):
		o.After = f.since
	case f.since != "":
		o.Since = f.since
	default:
		o.Tail = &f.tail
	}
	return o
}

var bareNumber = regexp.MustCompile(`^[0-9]+$`)

// eventID matches the id of an event, and also a bare number. The only bare number that check accepts is 0.
var eventID = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

func eventsCommand(a *app) *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use: "events", Short: "show what happened, and follow what happens", Args: term.Exactly(),
		Long: `Shows the newest events, or those since --since. With -f it goes on with those to come, and outlives changes of the leader without a gap
and without repeating any. With -o json and -f: one event a line.`,
		Example: "outspan events -f\noutspan events --since 30m --subject node/n7\n" +
			"outspan events --since 1042.0 --type node. -o json\noutspan events --subject drain/01J9ZK -f",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if f.follow {
				return a.followEvents(cmd.Context(), &f)
			}
			return a.listEvents(cmd.Context(), &f)
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&f.follow, "follow", "f", false, "go on with what happens from now on")
	fs.StringVar(&f.since, "since", "",
		"begin with what happened since then: a duration such as 30m, a time such as 2026-01-31T12:00:00Z, or behind the "+
			"event of this id; 0: with the oldest that is kept")
	fs.IntVar(&f.tail, "tail", 1000, "without --since: begin with this many of the newest")
	fs.StringSliceVar(&f.types, "type", nil, "only these types; node. stands for all that begin so")
	fs.StringSliceVar(&f.subjects, "subject", nil,
		"only of these objects, such as node/NAME, job/NAME or instance/ID; node/ stands for all that begin so")
	return cmd
}

// eventList is the JSON that the command events prints without -f.
type eventList struct {
	Items []json.RawMessage `json:"items"`
	Index uint64            `json:"index"`
}

func (a *app) listEvents(ctx context.Context, f *eventFlags) error {
	found := eventList{Items: []json.RawMessage{}}
	var events []api.Event
	for e, err := range a.client().Events.List(ctx, f.options()) {
		if err != nil {
			return err
		}
		events = append(events, e.Value)
		found.Items, found.Index = append(found.Items, e.Raw), e.Index
	}
	raw, err := term.Marshal(found)
	if err != nil {
		return err
	}
	if !a.Output.Machine() {
		a.nameNodes(ctx, events)
	}
	return showList(a, client.List[api.Event]{Items: events, Raw: raw}, func(e api.Event) string {
		return e.ID
	}, []term.Column[api.Event]{
		{Head: "id", Cell: func(e api.Event) string { return e.ID }},
		{Head: "time", Cell: func(e api.Event) string { return term.Stamp(&e.Time) }},
		{Head: "type", Cell: func(e api.Event) string { return string(e.Type) }},
		{Head: "subject", Cell: func(e api.Event) string { return e.Subject }},
		{Head: "change", Cell: whyChanged},
		{Head: "cause", Cell: func(e api.Event) string { return string(e.Cause) }},
		{Head: "actor", Cell: func(e api.Event) string { return string(e.Actor) }},
		{Head: "data", Wide: true, Cell: eventData},
	})
}

// nameNodes replaces the ids of nodes in the subjects of events by the nodes' names. The id stays if the node is gone
// or no server answers.
func (a *app) nameNodes(ctx context.Context, events []api.Event) {
	if !slices.ContainsFunc(events, func(e api.Event) bool { return strings.HasPrefix(e.Subject, "node/") }) {
		return
	}
	known, err := a.client().Nodes.List(ctx, client.ListOptions{
		ReadOptions: client.ReadOptions{Consistency: client.Stale}, Fields: []string{"id", "name"},
	})
	if err != nil {
		return
	}
	names := map[string]string{}
	for _, n := range known.Items {
		names["node/"+string(n.ID)] = "node/" + n.Name
	}
	for i := range events {
		events[i].Subject = term.First(names[events[i].Subject], events[i].Subject)
	}
}

// changeText returns what an event changed: "before -> after", or that a drain was paused or resumed. If the event has
// neither of these values, it returns the text or the instances in its data.
func changeText(e api.Event) string {
	before, after := e.Data["before"], e.Data["after"]
	switch {
	case e.Data["paused"] != "":
		return map[string]string{"true": "paused", "false": "resumed"}[e.Data["paused"]]
	case before == "" && after == "":
		return term.First(e.Data["text"], e.Data["instances"])
	case before == "":
		return after
	}
	return before + " -> " + term.First(after, "nothing")
}

func eventData(e api.Event) string {
	var parts []string
	for k, v := range e.Data {
		if k != "before" && k != "after" {
			parts = append(parts, k+"="+v)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// followEvents prints events until Ctrl-C. After a lost connection, it resumes with the event after the last printed
// one.
func (a *app) followEvents(ctx context.Context, f *eventFlags) error {
	for e, err := range a.client().Events.Follow(ctx, f.options()) {
		if err != nil {
			return err
		}
		if err := a.printEvent(e.Value, e.Raw); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (a *app) printEvent(e api.Event, raw []byte) error {
	switch {
	case a.Output.Template != "":
		return term.PrintTemplate(a.Printable(), a.Output.Template, raw)
	case a.Output.Is(term.AsJSON):
		a.Printf("%s\n", raw)
	case a.Output.Is(term.AsYAML):
		a.Printf("---\n")
		return term.PrintYAML(a.Out, raw)
	case a.Output.Is(term.AsName):
		a.Printf("%s\n", e.ID)
	default:
		line := fmt.Sprintf("%s %s %s %s %s", e.Time.Local().Format("15:04:05"), e.ID, e.Type, e.Subject, changeText(e))
		for _, one := range [...]string{string(e.Cause), string(e.Actor), eventData(e)} {
			if one != "" {
				line += " " + one
			}
		}
		a.Printf("%s\n", term.OneLine(line))
	}
	return nil
}
