package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// client returns the client of this run, which connects at its first call. If no server address is known or the
// certificate can't be loaded, every call of the client returns the reason.
func (a *app) client() *client.Client {
	if a.conn.opened == nil {
		cfg, err := a.conn.config(a.Env)
		if err == nil {
			noteEnd(&a.Console, cfg)
			a.conn.opened, err = client.New(cfg)
		}
		if err != nil {
			a.conn.opened = nowhere(err)
		}
	}
	return a.conn.opened
}

// nowhere returns a client whose calls all fail with err.
func nowhere(err error) *client.Client {
	c, _ := client.New(client.Config{ // can't fail, because the address is valid
		Addresses: []string{"unix:///nowhere"}, RetryFor: -1,
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, err },
	})
	return c
}

// reader reads one object. Each call reads the present state of the same object.
type reader[T any] = func(context.Context, client.ReadOptions) (client.Response[T], error)

// of returns a reader of the object named ref.
func of[T any](get func(context.Context, string, client.ReadOptions) (client.Response[T], error),
	ref string) reader[T] {
	return func(ctx context.Context, o client.ReadOptions) (client.Response[T], error) { return get(ctx, ref, o) }
}

// fieldsFor returns the JSON fields that a list must request for the table's columns. If the output is for a program,
// it returns nil, which means all fields.
func fieldsFor[T any](a *app, columns []term.Column[T]) []string {
	if a.Output.Machine() {
		return nil
	}
	return []string{term.FieldsOf(columns, a.Output.Effective() == term.AsWide)}
}

// leaderless is how long orStale waits for a leader before it asks any server.
const leaderless = 2 * time.Second

// noteWaiting prints that a call has no answer yet, the reason, and for how long the call will be repeated. An election
// takes only a second or two, but without a majority of servers the wait is long.
func (a *app) noteWaiting(why error, atMost time.Duration) {
	var known *model.Error
	if errors.As(why, &known) {
		a.Note("no answer yet: %s (%s); trying for %s more, Ctrl-C ends it", known.Message, known.Code, term.Span(atMost))
	}
}

// orStale reads from the leader. If there is no leader, it reads from any server, because users need the state most
// when there is no leader. If asked is not "", it reads only with the consistency in asked.
func orStale(a *app, asked client.Consistency, read func(client.Consistency) error) error {
	if asked != "" {
		return read(asked)
	}
	a.conn.retryFor, a.conn.waiting = leaderless, nil
	err := read(asked)
	if !isCode(err, model.CodeNoLeader) {
		return err
	}
	if read(client.Stale) != nil {
		return err
	}
	a.Note("there is no leader: this is what one server knows")
	return nil
}

// sorted sorts the items in place, for tables. The JSON output keeps the order of the server, which is stable across
// pages.
func sorted[T any](l client.List[T], compare func(x, y T) int) client.List[T] {
	slices.SortStableFunc(l.Items, compare)
	return l
}

func namesOf[T any](items []T, name func(T) string) []string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = name(item)
	}
	return names
}

func showList[T any](a *app, l client.List[T], name func(T) string, columns []term.Column[T]) error {
	return a.Show(term.Result{JSON: l.Raw, Names: namesOf(l.Items, name), Text: func(p *term.Page) {
		term.Rows(p, l.Items, columns)
		if l.Hidden > 0 {
			a.Note("%d more that you may not see", l.Hidden)
		}
	}})
}

// watch reads an object now, each time it changes, and every 10 s. After each read, it calls the function each, until
// that returns true or an error. After a transient error, such as a change of the leader, it tries again until ctx
// ends.
func watch[T any](ctx context.Context, a *app, read reader[T],
	each func(client.Response[T]) (done bool, err error)) error {
	return watchEvery(ctx, a, read, 10*time.Second, each)
}

// watchEvery is like watch, but reads at least once in the interval most instead of 10 s. It is for objects whose view
// depends on the time or on other objects.
func watchEvery[T any](ctx context.Context, a *app, read reader[T], most time.Duration,
	each func(client.Response[T]) (done bool, err error)) error {
	lost := func(why error) { a.Note("lost the servers (%s), trying again", describe(why).Message) }
	for got, err := range client.Watch(ctx, read, client.WatchOptions{Every: most, Lost: lost}) {
		if err != nil {
			return err
		}
		if done, err := each(got); done || err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// wait waits for the duration d. It returns false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// writeFlags are the flags of every command that changes something.
type writeFlags struct {
	requestID string
	dryRun    bool
}

// register adds the flag --request-id. If dryRun is not "", it also adds --dry-run with that help text.
func (f *writeFlags) register(cmd *cobra.Command, dryRun string) {
	cmd.Flags().
		StringVar(&f.requestID, "request-id", "",
			"name of this write: the same id with the same request is carried out once (default: a new one)")
	if dryRun != "" {
		cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, dryRun)
	}
}

func (f *writeFlags) options() client.WriteOptions {
	return client.WriteOptions{RequestID: model.RequestID(f.requestID), DryRun: f.dryRun}
}

// parseIndex parses the value of --if-index. For "" it returns nil, which means no condition.
func parseIndex(text string) (*uint64, error) {
	if text == "" {
		return nil, nil
	}
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, term.Usage("--if-index %q is not an index", text).WithHint("give a whole number, as the commands show it")
	}
	return &index, nil
}

// would returns done, a phrase about the effect of a write such as "is cordoned" or "settings are changed". For a dry
// run, it changes the phrase to say what the write would do, such as "would be cordoned".
func (f *writeFlags) would(done string) string {
	if !f.dryRun {
		return done
	}
	words := strings.Fields(done)
	for i, word := range words {
		if verb, ok := conditional[word]; ok {
			words[i] = "would " + verb
			return strings.Join(words, " ")
		}
	}
	return done
}

// conditional maps the verbs in the phrases of writeFlags.would to the form that follows "would".
var conditional = map[string]string{"is": "be", "are": "be", "takes": "take", "has": "have"}

// done returns the end of the line about a write: "(index 7)", or for a dry run that nothing was changed.
func (f *writeFlags) done(index uint64) string {
	if f.dryRun {
		return "(dry run: nothing was changed)"
	}
	return fmt.Sprintf("(index %d)", index)
}

type listFlags struct {
	filters     []string
	consistency string
}

func (f *listFlags) register(cmd *cobra.Command) {
	cmd.Flags().
		StringArrayVar(&f.filters, "filter", nil,
			"only what matches a field of its JSON: field=value, field!=value or field~text; repeat it for more conditions")
	cmd.Flags().
		StringVar(&f.consistency, "consistency", "", "default, consistent or stale (any server, also without a leader)")
}

func (f *listFlags) options() client.ListOptions {
	return client.ListOptions{ReadOptions: client.ReadOptions{Consistency: client.Consistency(f.consistency)},
		Filter: f.filters}
}

// oneChange is a command that changes one object, which its argument names.
type oneChange struct {
	noun, verb, short string
	arg               string // name of the argument, such as DRAIN
	kind              string // kind of object, for shell completion
	done              string // what the command then says of the object, such as "is paused"
	do                func(ctx context.Context, ref string, o client.WriteOptions) (changed, error)
}

// changed is the answer to a oneChange.
type changed struct {
	raw   []byte
	id    string
	index uint64
}

func (c oneChange) command(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: c.verb + " " + c.arg, Short: c.short, Args: term.Exactly(c.arg), ValidArgsFunction: a.complete(c.kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			got, err := c.do(cmd.Context(), args[0], write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.raw, Names: []string{got.id}, Text: func(p *term.Page) {
				p.Line("%s %s %s %s", c.noun, got.id, write.would(c.done), write.done(got.index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}
