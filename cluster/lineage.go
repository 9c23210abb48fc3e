package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// tellEvery is the pause between two rounds of greetLeftServers.
const tellEvery = 5 * time.Second

// hello returns the layer that raft's connections use.
func (s *Server) hello(log hclog.Logger) *helloLayer {
	return &helloLayer{
		Stream: s.cfg.Stream, self: s.dir.id, history: s.History, join: s.joinHistory, replaced: s.replacedBy,
		configured: s.configuredAddress, claimed: s.claimedAddress, proven: s.seen.proven.note, log: log,
	}
}

// joinHistory gives this new server the history of the server that adds it to a cluster. It fails if this server
// already has a log, because the log's entries may belong to another history.
func (s *Server) joinHistory(h model.History) error {
	if !s.opened.Load() || !s.fresh() {
		return errors.New("this server has a log already")
	}
	if err := s.dir.join(h); err != nil {
		return err
	}
	s.setHistory(h)
	return nil
}

// replacedBy stops this server permanently, because the cluster was recovered without it. by is the history of the
// recovered cluster. In production replacedBy does not return.
func (s *Server) replacedBy(by model.History) {
	s.failWith(replacedError(s.cfg.DataDir, by), func() { // runs once, though each server of the new lineage calls
		if err := s.dir.noteReplaced(by); err != nil {
			s.log.Error("can't note that this server was replaced", "error", err)
		}
	})
}

// noteReplaced marks the directory, so that the server does not start again.
func (d *dataDir) noteReplaced(by model.History) error {
	return durable.ReplaceBytes(d.file(fileReplaced), []byte(by.String()+"\n"), 0o600)
}

// replaced returns the history that noteReplaced wrote, or a zero history if there is none. Code: conflict if the mark
// is damaged.
func (d *dataDir) replaced() (by model.History, err error) {
	text, err := os.ReadFile(d.file(fileReplaced))
	if errors.Is(err, fs.ErrNotExist) {
		return by, nil
	}
	if err != nil {
		return by, fmt.Errorf("read %s: %w", d.file(fileReplaced), err)
	}
	by, refusal := model.ParseHistory(strings.TrimSpace(string(text)))
	if refusal != nil {
		return by, model.Refuse(model.CodeConflict, "%s is damaged: %v", d.file(fileReplaced), refusal)
	}
	return by, nil
}

// checkReplaced returns an error if noteReplaced marked the directory, or if the mark can't be read. Code: conflict.
func (d *dataDir) checkReplaced() error {
	by, err := d.replaced()
	if err == nil && by.Cluster != "" {
		return replacedError(d.path, by)
	}
	return err
}

// superseded returns the lineages that a recovery of this directory replaces. There are some only if an earlier
// recovery left this server behind. lineage is the lineage of the earlier recovery, as the operator gave it, or empty.
// Codes: conflict if noteReplaced marked the directory with a lineage that is not the given one, or if the mark is
// damaged; invalid if lineage is malformed.
func (d *dataDir) superseded(lineage string) ([]string, error) {
	by, err := d.replaced()
	switch {
	case err != nil:
		return nil, err
	case by.Cluster == "" && lineage == "":
		return nil, nil
	case by.Cluster == "": // this server met no server of that lineage; an agent's refusal named it to the operator
		return []string{lineage}, checkLineage(lineage)
	case lineage != by.Lineage():
		return nil, replacedError(d.path, by)
	}
	own := d.history().Lineages
	return slices.DeleteFunc(by.Lineages, func(l string) bool { return slices.Contains(own, l) }), nil
}

// checkLineage returns an error unless lineage has the form that newLineage makes. lineage must not be empty. Code:
// invalid.
func checkLineage(lineage string) error {
	if !lineageForm.MatchString(lineage) {
		return model.Refuse(model.CodeInvalid, "%.40q is no lineage", lineage).
			WithHint("copy it whole from the refusal that names it, like 2v9gq0yh4t6w8zke-16")
	}
	return nil
}

// lineageForm also allows the names without an incarnation that earlier programs made.
var lineageForm = regexp.MustCompile(`^[0-9a-z]{16}(-[0-9]{1,7})?$`)

// newLineage returns the name of a new lineage: 80 random bits, which no other recovery has, and its incarnation.
func newLineage(incarnation uint64) string {
	id := newID()
	return model.NewLineage(strings.ToLower(id[len(id)-16:]), incarnation)
}

// Incarnations of recoveries. The state on disk may lack restores, which raise the incarnation by one each, and so may
// the name of a superseded lineage. Numbers that were minted then must not be minted again.
const (
	recoveryRaise = 16   // how far a recovery raises the incarnation above any that it knows
	maxAhead      = 4096 // how far the incarnation in the name of a superseded lineage may be ahead of the state
)

// recovered returns the history of this directory after a recovery. own is the history of the recovered state, and
// incarnation that state's. supersedes is as in superseded. Codes: those of superseded; invalid if supersedes names an
// incarnation that no other lineage can have.
func (d *dataDir) recovered(own model.History, supersedes string, incarnation uint64) (model.History, error) {
	others, err := d.superseded(supersedes)
	if err != nil {
		return model.History{}, err
	}
	most := max(incarnation, own.Began())
	for _, other := range others {
		began := model.LineageBegan(other)
		if began > most+maxAhead {
			return model.History{}, model.Refuse(model.CodeInvalid,
				"the lineage %s began with incarnation %d, and this server's state is of %d: that can't be", other, began,
				incarnation).
				WithHint("an agent may have made that lineage up: look for refusals of other agents")
		}
	}
	next := min(max(most, model.History{Lineages: others}.Began())+recoveryRaise, fsm.MaxIncarnation)
	return own.Recovered(newLineage(next), others...), nil
}

// checkRecovering returns an error if Recover was interrupted in the directory, because the directory's lineage and
// raft configuration may not belong together. Code: conflict.
func (d *dataDir) checkRecovering() error {
	if _, err := os.Stat(d.file(fileRecovering)); err == nil {
		return model.Refuse(model.CodeConflict, "server recover was interrupted in %s", d.path).
			WithHint("run it again with the same flags, then start the server")
	}
	return nil
}

func replacedError(dir string, by model.History) *model.Error {
	return model.Refuse(model.CodeConflict,
		"the cluster was recovered without this server: what %s holds was replaced by the lineage %s", dir, by.Lineage()).
		WithHint("start this server with an empty data_dir to join; if the recovered servers are lost for good: outspan "+
			"server recover --supersedes %s", by.Lineage())
}

// greetLeftServers connects again and again, until ctx ends, to the servers that a recovery left behind. It uses their
// last addresses in the log and those in gossip. The hello at the start of a connection makes such a server stop.
// Otherwise these servers could elect a leader among themselves and acknowledge writes.
//
// Another server may answer at such an address, for example a new server without state, and logs a warning. So the
// pause doubles after each greeting that was answered, up to tellMost.
func (s *Server) greetLeftServers(ctx context.Context) {
	layer := s.hello(s.log.Named("raft-net"))
	type greeting struct {
		pause time.Duration
		next  time.Time
	}
	greetings := map[leftServer]greeting{}
	for pause(ctx, tellEvery); ctx.Err() == nil; pause(ctx, tellEvery) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		free := make(chan struct{}, greetAtOnce)
		for _, left := range s.leftServers() {
			if g := greetings[left]; time.Now().Before(g.next) {
				continue
			}
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				if !greet(layer, left) {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				g := greetings[left]
				g.pause = min(max(2*g.pause, tellEvery), tellMost)
				g.next = time.Now().Add(g.pause)
				greetings[left] = g
			})
		}
		wg.Wait()
	}
}

const (
	tellMost    = 5 * time.Minute // the longest pause between two greetings at an address that answers
	greetAtOnce = 8               // concurrent greetings
	maxGreeted  = 32              // servers that are greeted only because of gossip, in one round
)

// greet connects to the address of a server that was left behind. It reports whether any server answered there.
func greet(layer *helloLayer, left leftServer) (answered bool) {
	conn, err := layer.dialAt(left.ID, left.Address, helloTimeout)
	if err == nil { // a server without state accepted the hello
		_ = conn.Close()
		return true
	}
	var lost net.Error
	return !errors.As(err, &lost) && !errors.Is(err, io.EOF)
}

// leftServers returns the servers to greet: those that the data directory lists as left behind, and those in gossip
// with a lineage that this server's lineage replaced. It returns no members. It returns nil if this server's cluster
// was never recovered.
func (s *Server) leftServers() []leftServer {
	h := s.History()
	if h.Lineage() == "" {
		return nil
	}
	members := map[model.ServerID]bool{s.dir.id: true}
	for _, v := range s.servers() {
		members[model.ServerID(v.ID)] = true
	}
	var left []leftServer
	for _, one := range s.dir.cluster.Left {
		if !members[one.ID] {
			left = append(left, one)
		}
	}
	found := 0
	for _, m := range s.seen.pool.Servers() {
		if m.State != fsm.GossipAlive || m.Meta.Server == nil || m.Meta.API == "" || members[model.ServerID(m.Name)] {
			continue
		}
		theirs := model.History{Cluster: m.Meta.Server.ClusterID}
		if lineage := m.Meta.Server.Lineage; lineage != "" {
			theirs.Lineages = []string{lineage}
		}
		if found < maxGreeted && h.Replaces(theirs) {
			left = append(left, leftServer{model.ServerID(m.Name), m.Meta.API})
			found++
		}
	}
	return left
}
