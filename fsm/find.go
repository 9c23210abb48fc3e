package fsm

import (
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// Finder looks up rows by name or id. There are two ways. The Find methods are for reads, and also accept a unique
// prefix. The Named methods are for writes, and accept only whole names and ids, so that a command for `api` never
// reaches `api-prod`. The exception is NamedInstance, which accepts a unique prefix of at least 6 characters, because
// nobody chooses the ids of instances.
//
// A Finder may be for somebody who may see only some rows. It then answers as if the state had no others: they are not
// found, suggested or counted. Its methods don't block. They are safe for concurrent use if the function that was given
// to State.Finder is.
type Finder struct {
	state *State
	sees  func(subject string) bool
}

// Finder returns a Finder for rows whose subject, such as "job/web" or "node/ID", sees accepts. If sees is nil, it
// accepts all.
func (s *State) Finder(sees func(subject string) bool) Finder {
	if sees == nil {
		sees = func(string) bool { return true }
	}
	return Finder{s, sees}
}

// Sees reports whether rows with this subject are looked up. It does not tell whether there is such a row.
func (f Finder) Sees(subject string) bool { return f.sees(subject) }

// FindJob finds a job by name or unique prefix. Codes: not_found, ambiguous.
func (f Finder) FindJob(prefix string) (*Job, *model.Error) {
	return find(f, f.state.Jobs, "job", prefix)
}

// NamedJob returns the job with this name. Code: not_found.
func (f Finder) NamedJob(name string) (*Job, *model.Error) {
	return named(f, f.state.Jobs, "job", name)
}

// FindDrain finds a drain by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindDrain(prefix string) (*Drain, *model.Error) {
	return find(f, f.state.Drains, "drain", prefix)
}

// NamedDrain returns the drain with this id. Code: not_found.
func (f Finder) NamedDrain(id string) (*Drain, *model.Error) {
	return named(f, f.state.Drains, "drain", id)
}

// FindDeployment finds a deployment by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindDeployment(prefix string) (*Deployment, *model.Error) {
	return find(f, f.state.Deployments, "deployment", prefix)
}

// NamedDeployment returns the deployment with this id. Code: not_found.
func (f Finder) NamedDeployment(id string) (*Deployment, *model.Error) {
	return named(f, f.state.Deployments, "deployment", id)
}

// FindVolume finds a volume by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindVolume(prefix string) (*Volume, *model.Error) {
	return find(f, f.state.Volumes, "volume", prefix)
}

// NamedVolume returns the volume with this id. Code: not_found.
func (f Finder) NamedVolume(id string) (*Volume, *model.Error) {
	return named(f, f.state.Volumes, "volume", id)
}

// FindTransfer finds a transfer by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindTransfer(prefix string) (*Transfer, *model.Error) {
	return find(f, f.state.Transfers, "transfer", prefix)
}

// NamedTransfer returns the transfer with this id. Code: not_found.
func (f Finder) NamedTransfer(id string) (*Transfer, *model.Error) {
	return named(f, f.state.Transfers, "transfer", id)
}

// FindBackup finds a backup by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindBackup(prefix string) (*Backup, *model.Error) {
	return find(f, f.state.Backups, "backup", prefix)
}

// NamedBackup returns the backup with this id. Code: not_found.
func (f Finder) NamedBackup(id string) (*Backup, *model.Error) {
	return named(f, f.state.Backups, "backup", id)
}

// FindNode finds a node by its name, its id, or a unique prefix of its id. Codes: not_found, ambiguous.
func (f Finder) FindNode(nameOrID string) (*Node, *model.Error) {
	if n, ok := f.node(nameOrID); ok {
		return n, nil
	}
	n, refusal := onlyPrefix(f, f.state.Nodes, "node", nameOrID)
	return n, f.suggest("node", nameOrID, refusal)
}

// NamedNode returns the node with this name or id. Code: not_found.
func (f Finder) NamedNode(nameOrID string) (*Node, *model.Error) {
	if n, ok := f.node(nameOrID); ok {
		return n, nil
	}
	near := beginning(f.state.nodeNames, nameOrID, f.seesNode)
	for _, id := range beginning(f.state.Nodes, model.NodeID(nameOrID), f.seesRow("node")) {
		n, _ := f.state.Nodes.Get(model.NodeID(id))
		near = append(near, n.Name)
	}
	return nil, f.suggest("node", nameOrID, model.NoSuch("node", nameOrID, near))
}

// FindInstance finds an instance by id or unique id prefix. If prefix is the whole id of an instance that an agent runs
// but the state does not know, the refusal names its node. Codes: not_found, ambiguous.
func (f Finder) FindInstance(prefix string) (*Instance, *model.Error) {
	inst, refusal := exactOrPrefix(f, f.state.Instances, "instance", prefix)
	if refusal == nil || refusal.Code != model.CodeNotFound {
		return inst, refusal
	}
	if n, h, ok := f.state.UnknownOn(model.InstanceID(prefix)); ok && f.sees("instance/"+prefix) {
		return nil,
			model.Refuse(model.CodeNotFound, "instance %s runs on node %s, and the restored state does not know it",
				h.ID, n.Name).
				WithHint("see: outspan node status %s; what confirming the restore does with it: outspan settings resume "+
					"restore --dry-run", n.Name)
	}
	return nil, f.suggest("instance", prefix, refusal)
}

// minInstancePrefix is the smallest length of a prefix that NamedInstance accepts.
const minInstancePrefix = 6

// NamedInstance returns the instance with this id. An id of at least 6 characters may also be a unique prefix. Codes:
// not_found, ambiguous.
func (f Finder) NamedInstance(id string) (*Instance, *model.Error) {
	if len(id) < minInstancePrefix {
		inst, refusal := exact(f, f.state.Instances, "instance", id)
		plain := refusal
		if refusal = f.suggest("instance", id, refusal); refusal == plain && refusal != nil && id != "" {
			refusal = refusal.WithHint("give the id of an instance, or at least %d characters of it; list them with: "+
				"outspan instance ls", minInstancePrefix)
		}
		return inst, refusal
	}
	return f.FindInstance(id)
}

// node returns the node with this name or id. ok is false if the Finder does not see such a node.
func (f Finder) node(nameOrID string) (n *Node, ok bool) {
	n, ok = f.state.NodeCalled(nameOrID)
	if !ok || !f.sees("node/"+string(n.ID)) {
		return nil, false
	}
	return n, true
}

// seesNode reports whether the Finder sees a node with this name.
func (f Finder) seesNode(name string) bool {
	_, ok := f.node(name)
	return ok
}

// seesRow returns the function that reports whether the Finder sees the row of a noun with a given key.
func (f Finder) seesRow(noun string) func(key string) bool {
	return func(key string) bool { return f.sees(noun + "/" + key) }
}

// NodeCalled returns the node with exactly this name or id.
func (s *fleet) NodeCalled(nameOrID string) (*Node, bool) {
	if n, ok := s.Nodes.Get(model.NodeID(nameOrID)); ok {
		return n, true
	}
	id, ok := s.nodeNames.Get(nameOrID)
	if !ok {
		return nil, false
	}
	return s.Nodes.Get(id)
}

// find returns the row whose key is word, or else the only row whose key begins with word. If there is none, the
// refusal suggests similar keys. Codes: not_found, ambiguous.
func find[K ~string, V any](f Finder, t Table[K, V], noun, word string) (V, *model.Error) {
	row, refusal := exactOrPrefix(f, t, noun, word)
	return row, withSimilar(f, t, noun, word, refusal)
}

// named returns the row whose key is word. If there is none, the refusal suggests similar keys. Code: not_found.
func named[K ~string, V any](f Finder, t Table[K, V], noun, word string) (V, *model.Error) {
	row, refusal := exact(f, t, noun, word)
	return row, withSimilar(f, t, noun, word, refusal)
}

// exact is named without the suggestion of similar keys. The refusal lists keys that begin with word.
func exact[K ~string, V any](f Finder, t Table[K, V], noun, word string) (row V, _ *model.Error) {
	if plant.Is(plant.PrefixInWrites) {
		return exactOrPrefix(f, t, noun, word)
	}
	if row, ok := t.Get(K(word)); ok && f.sees(noun+"/"+word) {
		return row, nil
	}
	return row, model.NoSuch(noun, word, beginning(t, K(word), f.seesRow(noun)))
}

// exactOrPrefix is find without the suggestion of similar keys.
func exactOrPrefix[K ~string, V any](f Finder, t Table[K, V], noun, word string) (V, *model.Error) {
	if row, ok := t.Get(K(word)); ok && f.sees(noun+"/"+word) {
		return row, nil
	}
	return onlyPrefix(f, t, noun, word)
}

// onlyPrefix returns the only row whose key begins with prefix. Codes: not_found, ambiguous.
func onlyPrefix[K ~string, V any](f Finder, t Table[K, V], noun, prefix string) (row V, _ *model.Error) {
	near := beginning(t, K(prefix), f.seesRow(noun))
	switch len(near) {
	case 0:
		return row, model.NoSuch(noun, prefix, nil)
	case 1:
		row, _ = t.Get(K(near[0]))
		return row, nil
	}
	more := ""
	if len(near) == maxNear {
		more = ", and there may be more"
	}
	return row, model.Refuse(model.CodeAmbiguous, "more than one %s begins with %q", noun, prefix).
		WithHint("give more characters; it may be %s%s", anyOf(near), more)
}

// maxNear bounds the similar names that a refusal lists.
const maxNear = 3

// beginning returns the first keys that begin with prefix and that sees accepts, at most maxNear. It returns nil if
// prefix is empty.
func beginning[K ~string, V any](t Table[K, V], prefix K, sees func(key string) bool) []string {
	var found []string
	if prefix == "" {
		return nil
	}
	for key := range t.From(prefix) {
		if !strings.HasPrefix(string(key), string(prefix)) || len(found) == maxNear {
			break
		}
		if sees(string(key)) {
			found = append(found, string(key))
		}
	}
	return found
}
