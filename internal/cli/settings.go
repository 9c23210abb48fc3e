package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

func settingsGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "get [KEY]", Short: "show the settings, or one of them", Args: term.Between(0, 1),
		ValidArgsFunction: completeWords(settingKeys()...),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := a.client().Settings.Get(cmd.Context(), client.ReadOptions{})
			if err != nil {
				return err
			}
			values, err := settingValues(got.Value.Settings)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return a.showSettings(got.Raw, values)
			}
			v, ok := values[args[0]]
			if !ok {
				return unknownSetting(args[0])
			}
			s, err := term.ResultOf(map[string]any{args[0]: v}, []string{args[0]}, func(p *term.Page) { p.Line("%v", v) })
			if err != nil {
				return err
			}
			return a.Show(s)
		},
	}
}

func (a *app) showSettings(raw []byte, values map[string]any) error {
	return a.Show(term.Result{JSON: raw, Names: settingKeys(), Text: func(p *term.Page) {
		term.Rows(p, settingKeys(), []term.Column[string]{
			{Head: "key", Cell: func(key string) string { return key }},
			{Head: "value", Cell: func(key string) string { return fmt.Sprint(values[key]) }},
		})
	}})
}

// settingKeys returns the names of the settings in the order of the fields of model.Settings.
func settingKeys() []string {
	var keys []string
	t := reflect.TypeFor[model.Settings]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		keys = append(keys, name)
	}
	return keys
}

// settingValues returns the settings by name, including empty ones.
func settingValues(s model.Settings) (map[string]any, error) {
	values := map[string]any{}
	v := reflect.ValueOf(s)
	for i, key := range settingKeys() {
		raw, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			return nil, fmt.Errorf("show setting %s: %w", key, err)
		}
		var value any
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.UseNumber()
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("show setting %s: %w", key, err)
		}
		values[key] = value
	}
	return values, nil
}

func unknownSetting(key string) error {
	refusal := term.Usage("there is no setting %q", key)
	if near := term.Nearest(key, settingKeys()); near != "" {
		return refusal.WithHint("did you mean %s?", near)
	}
	return refusal.WithHint("list them with: outspan settings get")
}

func settingsSet(a *app) *cobra.Command {
	var write writeFlags
	var ifIndex string
	cmd := &cobra.Command{
		Use: "set KEY=VALUE...", Short: "change settings; the others stay", Args: term.AtLeast(1),
		ValidArgsFunction: completeWords(suffixed(settingKeys(), "=")...),
		Example: "outspan settings set offline_after=30s\noutspan settings set placement_algorithm=binpack " +
			"drain_deadline=2h",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			for i, arg := range args {
				key, text, ok := strings.Cut(arg, "=")
				if !ok {
					value := "VALUE"
					if i+1 < len(args) && !strings.Contains(args[i+1], "=") {
						value = args[i+1]
					}
					return term.Usage("%q is not KEY=VALUE", arg).WithHint("write: outspan settings set %s=%s", key, value)
				}
				value, err := settingValue(key, text)
				if err != nil {
					return err
				}
				body[key] = value
			}
			index, err := parseIndex(ifIndex)
			if err != nil {
				return err
			}
			got, err := a.client().Settings.Set(cmd.Context(), body,
				client.ChangeOptions{WriteOptions: write.options(), IfIndex: index})
			if err != nil {
				return err
			}
			return a.showSettingsReply(got, "settings are changed", &write)
		},
	}
	write.register(cmd, "check only, change nothing")
	cmd.Flags().
		StringVar(&ifIndex, "if-index", "", "only if the settings are still at this index, which settings get -o json shows")
	return cmd
}

// settingValue parses the value of a setting according to the setting's type.
func settingValue(key, text string) (any, error) {
	t := reflect.TypeFor[model.Settings]()
	for i, name := range settingKeys() {
		if name != key {
			continue
		}
		switch f := t.Field(i).Type; {
		case f == reflect.TypeFor[model.ActorRate]():
			var rate model.ActorRate
			if err := rate.UnmarshalText([]byte(text)); err != nil {
				return nil, term.Usage("%s: %v", key, err)
			}
			return rate, nil
		case f == reflect.TypeFor[model.Duration]():
			d, err := model.ParseDuration(text)
			if err != nil {
				return nil, term.Usage("%s: %v", key, err)
			}
			return d, nil
		case f.Kind() == reflect.Bool:
			v, err := strconv.ParseBool(text)
			if err != nil {
				return nil, term.Usage("%s takes true or false, not %q", key, text)
			}
			return v, nil
		case f.Kind() == reflect.String:
			return text, nil
		case strings.HasSuffix(key, "_bytes"):
			n, err := model.ParseSize(text)
			if err != nil {
				return nil, term.Usage("%s: %v", key, err)
			}
			return n, nil
		default:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, term.Usage("%s takes a whole number, not %q", key, text)
			}
			return n, nil
		}
	}
	return nil, unknownSetting(key)
}

func (a *app) showSettingsReply(got client.Response[api.SettingsReply], done string, write *writeFlags) error {
	return a.Show(term.Result{JSON: got.Raw, Names: settingKeys(), Text: func(p *term.Page) {
		p.Line("%s %s", write.would(done), write.done(got.Value.Index))
	}})
}

func settingsPause(a *app) *cobra.Command {
	return settingsVerb(a, "pause", "go on computing decisions, but carry none out; drains say so", "actuation is paused",
		client.Settings.Pause, "actuation")
}

func settingsResume(a *app) *cobra.Command {
	cmd := settingsVerb(a, "resume", "carry decisions out again, end a HOLD, or confirm a restored snapshot",
		"decisions are carried out", client.Settings.Resume, "pause", "hold", "restore", "actuation")
	cmd.Long = `Ends what is named: pause (decisions are carried out again; actuation means the same), hold, or restore. Without a name it ends what is in force if that is
one thing. A restore must be named: agents then stop what the servers don't know. Look first at what that is: outspan settings resume restore --dry-run`
	cmd.Example = "outspan settings resume\noutspan settings resume restore --dry-run\noutspan settings resume restore"
	return cmd
}

// showUnknown shows what the confirmation of a restore would do: which instances would stop and which would continue.
// It also lists nodes that are not active in the restored state, volume data that was found, and nodes whose agents
// don't answer.
func (a *app) showUnknown(ctx context.Context) error {
	got, err := a.client().Cluster.UnknownInstances(ctx)
	if err != nil {
		return err
	}
	found, err := a.client().Volumes.Found(ctx)
	if err != nil {
		return err
	}
	var names []string
	var kept []api.UnknownInstance
	for _, i := range got.Value.Items {
		if i.Kept {
			kept = append(kept, i)
			continue
		}
		names = append(names, string(i.Instance))
	}
	return a.Show(term.Result{JSON: got.Raw, Names: names, Text: func(p *term.Page) {
		if got.Value.Confirmed {
			p.Line("no restore waits to be confirmed; there is nothing to do")
			return
		}
		p.Line("confirming the restore would stop %d instances that the servers don't know; nothing was changed",
			len(got.Value.Items)-len(kept))
		for _, i := range kept {
			p.Line("instance %s in slot %d of %s on node %s goes on and is adopted if nothing else can be in the slot; to "+
				"stop it then: outspan instance stop %s", i.Instance, i.Slot, i.Group, i.Node, i.Instance)
		}
		for _, n := range got.Value.Out {
			if n.Drain != "" {
				p.Line("node %s is %s in the restored state: drain %s goes on; to cancel it: outspan node uncordon %s",
					n.Node, n.Intent, n.Drain, n.Node)
				continue
			}
			p.Line("node %s is %s in the restored state", n.Node, n.Intent)
		}
		for _, node := range got.Value.Silent {
			p.Line("the agent of node %s does not answer: what it would stop is not listed", node)
		}
		for _, node := range got.Value.Owing {
			p.Line("the list may be incomplete: the agent of node %s has not told since the restore what runs there", node)
		}
		a.showFound(p, found.Value)
		stops := slices.DeleteFunc(slices.Clone(got.Value.Items), func(i api.UnknownInstance) bool { return i.Kept })
		if len(stops) == 0 {
			return
		}
		term.Rows(p, stops, []term.Column[api.UnknownInstance]{
			{Head: "node", Cell: func(i api.UnknownInstance) string { return i.Node }},
			{Head: "job", Cell: func(i api.UnknownInstance) string { return string(i.Job) }},
			{Head: "instance", Cell: func(i api.UnknownInstance) string { return string(i.Instance) }},
			{Head: "group", Cell: func(i api.UnknownInstance) string { return string(i.Group) }},
			{Head: "slot", Cell: func(i api.UnknownInstance) string { return fmt.Sprint(i.Slot) }},
			{Head: "observed", Cell: func(i api.UnknownInstance) string { return string(i.Observed) }},
		})
	}})
}

// settingsWrite is the API call that pauses or resumes what its body names.
type settingsWrite func(client.Settings, context.Context, api.PauseBody,
	client.WriteOptions) (client.Response[api.SettingsReply], error)

func settingsVerb(a *app, verb, short, done string, do settingsWrite, targets ...string) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: verb + " [" + strings.Join(targets, "|") + "]", Short: short, Args: term.Between(0, 1),
		ValidArgsFunction: completeWords(targets...),
		RunE: func(cmd *cobra.Command, args []string) error {
			var body api.PauseBody
			if len(args) == 1 {
				if !slices.Contains(targets, args[0]) {
					return term.Usage("%q can't be %sd", args[0], verb).
						WithHint("write: outspan settings %s [%s]", verb, strings.Join(targets, "|"))
				}
				body.What = args[0]
			}
			got, err := do(a.client().Settings, cmd.Context(), body, write.options())
			if err != nil {
				return err
			}
			if body.What == "restore" && write.dryRun {
				return a.showUnknown(cmd.Context())
			}
			return a.showSettingsReply(got, resumed(body.What, done), &write)
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}

// resumed returns the text that the command prints: the parameter done, or a text of its own for hold and restore.
func resumed(what, done string) string {
	switch what {
	case "hold":
		return "the hold is over"
	case "restore":
		return "the restore is confirmed: agents stop what the servers don't know"
	}
	return done
}

func suffixed(words []string, end string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w + end
	}
	return out
}
