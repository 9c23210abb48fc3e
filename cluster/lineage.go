package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// tellEvery is how often a recovered cluster looks for the servers that it left behind.
const tellEvery = 5 * time.Second

// hello returns the layer of raft's connections.
func (s *Server) hello(log hclog.Logger) *helloLayer {
	return &helloLayer{
		Stream: s.cfg.Stream, self: s.dir.id, history: s.History, join: s.joinHistory, replaced: s.replacedBy,
		configured: s.configuredAddress, claimed: s.claimedAddress, proven: s.seen.proven.note, log: log,
	}
}

// joinHistory takes over the history of the server that takes this one in. It fails if this server already has a log,
// because its entries may belong to another history.
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

// replacedBy ends this server for good: another one was recovered in its place. It does not return in production.
func (s *Server) replacedBy(by model.History) {
	s.failWith(replacedError(s.cfg.DataDir, by), func() { // each server of the new lineage causes a call
		if err := s.dir.noteReplaced(by); err != nil {
			s.log.Error("can't note that this server was replaced", "error", err)
		}
	})
}

// noteReplaced keeps this server from starting again.
func (d *dataDir) noteReplaced(by model.History) error {
	return durable.ReplaceBytes(d.file(fileReplaced), []byte(by.String()+"\n"), 0o600)
}

// replaced reads what noteReplaced wrote; zero if there is none.
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

// checkReplaced fails for a directory that noteReplaced marked. Code: conflict.
func (d *dataDir) checkReplaced() error {
	by, err := d.replaced()
	if err == nil && by.Cluster != "" {
		return replacedError(d.path, by)
	}
	return err
}

// superseded returns the lineages that a recovery of this directory replaces. They come from an earlier recovery that
// left this server behind, and the operator has to name its lineage. Codes: conflict, invalid.
func (d *dataDir) superseded(lineage string) ([]string, error) {
	by, err := d.replaced()
	switch {
	case err != nil:
		return nil, err
	case by.Cluster == "" && lineage == "":
		return nil, nil
	case by.Cluster == "": // this server never met a server of that lineage, but an agent did, and named it
		return []string{lineage}, checkLineage(lineage)
	case lineage != by.Lineage():
		return nil, replacedError(d.path, by)
	}
	own := d.history().Lineages
	return slices.DeleteFunc(by.Lineages, func(l string) bool { return slices.Contains(own, l) }), nil
}

// checkLineage fails for a name that newLineage does not make. Code: invalid.
func checkLineage(lineage string) error {
	for _, c := range lineage {
		if len(lineage) != lineageLength || !strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyz", c) {
			return model.Refuse(model.CodeInvalid, "%.40q is no lineage", lineage).
				WithHint("copy it from the refusal that names it: %d letters and digits", lineageLength)
		}
	}
	return nil
}

// lineageLength is the length of a lineage's name, in letters and digits of five bits each.
const lineageLength = 16

// newLineage makes a name that no other recovery has.
func newLineage() string {
	id := newID()
	return strings.ToLower(id[len(id)-lineageLength:])
}

// checkRecovering fails for a directory in which Recover was interrupted: its lineage and its configuration may not
// belong together. Code: conflict.
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

// greetLeftServers connects to the servers that a recovery left behind, at their last addresses in the log and wherever
// gossip sees them. The hello at the start of the connection makes them stop. Otherwise they would elect each other and
// acknowledge writes.
//
// Another server may answer there, such as an empty one with the same address. Servers that answer are greeted more and
// more rarely, because each greeting is a warning in their log.
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
	tellMost    = 5 * time.Minute // the longest pause between two greetings of a server that answers
	greetAtOnce = 8               // greetings at a time
	maxGreeted  = 32              // servers from gossip, in addition to those of the directory
)

// greet connects to a server that was left behind, and reports whether any server answered at its address.
func greet(layer *helloLayer, left leftServer) (answered bool) {
	conn, err := layer.dialAt(left.ID, left.Address, helloTimeout)
	if err == nil { // an empty server answered in its place
		_ = conn.Close()
		return true
	}
	var lost net.Error
	return !errors.As(err, &lost) && !errors.Is(err, io.EOF)
}

// leftServers returns the servers to greet. There are none unless a recovery began this server's lineage.
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
