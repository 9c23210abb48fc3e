package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

const (
	healthLook = time.Second // between two looks of a wait: as often as the leader asks the servers
	closeBy    = 250         // entries: a server that is behind by less has caught up
)

func serverHealth(a *app) *cobra.Command {
	var leader bool
	var until waitFlags
	cmd := &cobra.Command{
		Use: "health", Short: "ask servers whether they are ready", Args: exactly(),
		Example: "outspan server health\noutspan server health --wait --timeout 60s",
		Long: `Asks each server at --address whether it has caught up and knows a leader. Exit code 6 when one of them is not ready.

--wait waits for the whole cluster: until there is a leader, every server of the cluster answers it, votes and has caught up, and
those at --address are ready. It is what to wait for between two steps of a rolling restart.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if err := a.waitForServers(ctx, leader, &until); err != nil {
				return err
			}
			all, failed := a.askHealth(ctx, leader)
			if len(all) == 0 {
				return failed
			}
			return cmp.Or(a.showHealth(all), failed)
		},
	}
	cmd.Flags().BoolVar(&leader, "leader", false, "only the leader is ready; of several addresses it is enough that one is the leader's")
	until.register(cmd, "ready")
	return cmd
}

// serverAnswer is what the server at an address says of itself.
type serverAnswer struct {
	Address string `json:"address"`
	api.Health
	raw  []byte
	dark bool // it said nothing of itself: Status tells why
}

// askHealth asks each address by itself: an answer of another server says nothing about the one that was asked. With
// leader the one that leads is looked for. Where one of several is not ready the answers come with the error of the
// first one that is not.
func (a *app) askHealth(ctx context.Context, leader bool) ([]serverAnswer, error) {
	addresses, err := a.conn.endpoints(a.env)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 1 || leader {
		got, err := a.client().Cluster.Ready(ctx, leader)
		if err != nil {
			return nil, err
		}
		return []serverAnswer{{Address: strings.Join(addresses, ","), Health: got.Value, raw: got.Raw}}, nil
	}
	all, errs := make([]serverAnswer, len(addresses)), make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() {
			one := *a
			one.conn.opened, one.conn.address = nil, address
			got, err := one.client().Cluster.Ready(ctx, leader)
			all[i], errs[i] = serverAnswer{Address: address, Health: got.Value, raw: got.Raw}, err
		})
	}
	asked.Wait()
	var failed error
	for i, err := range errs {
		var known *model.Error
		switch {
		case err == nil:
		case errors.As(err, &known) && exitOf(err) == exitTransient && ctx.Err() == nil:
			all[i].Status, all[i].dark = strings.ReplaceAll(string(known.Code), "_", " "), true
			failed = cmp.Or(failed, error(model.Refuse(known.Code, "the server at %s is not ready: %s", addresses[i], describe(err).Message).
				WithHint("%s", first(known.Hint, "see its log, and: outspan server members"))))
		default:
			return nil, err
		}
	}
	return all, failed
}

func (a *app) showHealth(all []serverAnswer) error {
	h := all[max(0, slices.IndexFunc(all, func(s serverAnswer) bool { return !s.dark }))]
	if len(all) == 1 {
		return a.show(shown{json: h.raw, names: []string{h.Name}, text: func(p *page) {
			p.fields(field{"Name", h.Name}, field{"Status", h.Status}, field{"Leader", yesNo(h.Leader)}, field{"Index", fmt.Sprint(h.Index)}, field{"Disk", string(h.Disk)})
		}})
	}
	var names []string
	for _, one := range all {
		if !one.dark {
			names = append(names, one.Name)
		}
	}
	told := func(cell func(serverAnswer) string) func(serverAnswer) string {
		return func(s serverAnswer) string {
			if s.dark {
				return "-"
			}
			return cell(s)
		}
	}
	s, err := shownValue(struct { // the first answer of a server that is ready, and those of all
		api.Health
		Servers []serverAnswer `json:"servers"`
	}{h.Health, all}, names, func(p *page) {
		rows(p, all, []column[serverAnswer]{
			{head: "address", cell: func(s serverAnswer) string { return s.Address }},
			{head: "name", cell: told(func(s serverAnswer) string { return s.Name })},
			{head: "status", cell: func(s serverAnswer) string { return s.Status }},
			{head: "leader", cell: told(func(s serverAnswer) string { return yesNo(s.Leader) })},
			{head: "index", cell: told(func(s serverAnswer) string { return fmt.Sprint(s.Index) })},
		})
	})
	if err != nil {
		return err
	}
	return a.show(s)
}

// waitForServers waits until the cluster is whole and the servers that are asked are ready, at two looks in a row: a
// server that has just stopped may
// have answered right before.
func (a *app) waitForServers(ctx context.Context, leader bool, until *waitFlags) error {
	if until.state == "" {
		return nil
	}
	ctx, cancel := until.limit(ctx, "the cluster")
	defer cancel()
	lacks := "no server is ready"
	for whole := 0; ; {
		why, err := a.lookAtServers(ctx, leader)
		switch {
		case err == nil && why == "":
			if whole++; whole == 2 {
				return nil
			}
		case err != nil && ctx.Err() == nil && exitOf(err) != exitTransient:
			return err
		case ctx.Err() == nil:
			whole, lacks = 0, why
		}
		pause := healthLook
		if whole == 0 {
			pause /= 5
		}
		if !wait(ctx, pause) {
			if cause := context.Cause(ctx); !isCode(cause, codeWaitTimedOut) {
				return cause
			}
			return model.Refuse(codeWaitTimedOut, "the cluster is not whole after %s: %s", until.timeout, lacks).
				WithHint("don't stop another server now; see its log, and: outspan server members")
		}
	}
}

// lookAtServers says what the cluster lacks; "" if it is whole.
func (a *app) lookAtServers(ctx context.Context, leader bool) (string, error) {
	if _, err := a.askHealth(ctx, leader); err != nil {
		return describe(err).Message, err
	}
	got, err := a.client().Members.List(ctx, client.ListOptions{})
	if err != nil {
		return describe(err).Message, err
	}
	return lackingServer(got.Items), nil
}

// lackingServer says why a cluster is not whole; "" if it is.
func lackingServer(members []api.Member) string {
	if !slices.ContainsFunc(members, func(m api.Member) bool { return m.Leader }) {
		return "there is no leader"
	}
	for _, m := range members {
		switch {
		case m.State != api.MemberAlive:
			return fmt.Sprintf("server %s is %s", m.Name, m.State)
		case !m.Voter:
			return fmt.Sprintf("server %s has no vote yet", m.Name)
		case !m.Answers:
			return fmt.Sprintf("server %s does not answer the leader", m.Name)
		case m.IndexLag > closeBy:
			return fmt.Sprintf("server %s is %d entries behind the leader", m.Name, m.IndexLag)
		}
	}
	return ""
}
