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

// FindNode finds a node by its name, its id, or a unique prefix of its id. Codes: not_found, ambiguous.
func (f Finder) FindNode(nameOrID string) (*Node, *model.Error) {
	if n, ok := f.node(nameOrID); ok {
		return n, nil
	}
	n, refusal := findPrefix(f, f.state.Nodes, model.NodeID(nameOrID), "node")
	return n, f.suggest("node", nameOrID, refusal)
}

// FindInstance finds an instance by id or unique id prefix. If prefix is the whole id of an instance that an agent runs
// but the state does not know, the refusal names its node. Codes: not_found, ambiguous.
func (f Finder) FindInstance(prefix string) (*Instance, *model.Error) {
	inst, refusal := findExactOrPrefix(f, f.state.Instances, model.InstanceID(prefix), "instance")
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

// FindDrain finds a drain by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindDrain(prefix string) (*Drain, *model.Error) {
	return orSimilar(f, findExactOrPrefix, f.state.Drains, model.DrainID(prefix), "drain")
}

// FindJob finds a job by name or unique prefix. Codes: not_found, ambiguous.
func (f Finder) FindJob(prefix string) (*Job, *model.Error) {
	return orSimilar(f, findExactOrPrefix, f.state.Jobs, model.JobName(prefix), "job")
}

// FindDeployment finds a deployment by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindDeployment(prefix string) (*Deployment, *model.Error) {
	return orSimilar(f, findExactOrPrefix, f.state.Deployments, model.DeploymentID(prefix), "deployment")
}

// FindVolume finds a volume by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindVolume(prefix string) (*Volume, *model.Error) {
	return orSimilar(f, findExactOrPrefix, f.state.Volumes, model.VolumeID(prefix), "volume")
}

// FindTransfer finds a transfer by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindTransfer(prefix string) (*Transfer, *model.Error) {
	return orSimilar(f, findExactOrPrefix, f.state.Transfers, model.TransferID(prefix), "transfer")
}

// FindBackup finds a backup by id or unique id prefix. Codes: not_found, ambiguous.
func (f Finder) FindBackup(prefix string) (*Backup, *model.Error) {
	return orSimilar(f, findExactOrPrefix, f.state.Backups, model.BackupID(prefix), "backup")
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

// NamedJob returns the job with this name. Code: not_found.
func (f Finder) NamedJob(name string) (*Job, *model.Error) {
	return orSimilar(f, named, f.state.Jobs, model.JobName(name), "job")
}

// NamedDrain returns the drain with this id. Code: not_found.
func (f Finder) NamedDrain(id string) (*Drain, *model.Error) {
	return orSimilar(f, named, f.state.Drains, model.DrainID(id), "drain")
}

// NamedDeployment returns the deployment with this id. Code: not_found.
func (f Finder) NamedDeployment(id string) (*Deployment, *model.Error) {
	return orSimilar(f, named, f.state.Deployments, model.DeploymentID(id), "deployment")
}

// NamedVolume returns the volume with this id. Code: not_found.
func (f Finder) NamedVolume(id string) (*Volume, *model.Error) {
	return orSimilar(f, named, f.state.Volumes, model.VolumeID(id), "volume")
}

// NamedTransfer returns the transfer with this id. Code: not_found.
func (f Finder) NamedTransfer(id string) (*Transfer, *model.Error) {
	return orSimilar(f, named, f.state.Transfers, model.TransferID(id), "transfer")
}

// NamedBackup returns the backup with this id. Code: not_found.
func (f Finder) NamedBackup(id string) (*Backup, *model.Error) {
	return orSimilar(f, named, f.state.Backups, model.BackupID(id), "backup")
}

// minInstancePrefix is the smallest length of a prefix that NamedInstance accepts.
const minInstancePrefix = 6

// NamedInstance returns the instance with this id. An id of at least 6 characters may also be a unique prefix. Codes:
// not_found, ambiguous.
func (f Finder) NamedInstance(id string) (*Instance, *model.Error) {
	if len(id) < minInstancePrefix {
		inst, refusal := named(f, f.state.Instances, model.InstanceID(id), "instance")
		plain := refusal
		if refusal = f.suggest("instance", id, refusal); refusal == plain && refusal != nil && id != "" {
			refusal = refusal.WithHint("give the id of an instance, or at least %d characters of it; list them with: "+
				"outspan instance ls", minInstancePrefix)
		}
		return inst, refusal
	}
	return f.FindInstance(id)
}

// node returns the node with this name or id, if it is to be seen.
func (f Finder) node(nameOrID string) (*Node, bool) {
	n, ok := f.state.NodeCalled(nameOrID)
	if !ok || !f.sees("node/"+string(n.ID)) {
		return nil, false
	}
	return n, true
}

// seesNode reports whether the node with this name is to be seen.
func (f Finder) seesNode(name string) bool {
	_, ok := f.node(name)
	return ok
}

// seesRow returns the function that reports whether the row of a noun with this key is to be seen.
func (f Finder) seesRow(noun string) func(key string) bool {
	return func(key string) bool { return f.sees(noun + "/" + key) }
}

// NodeCalled returns the node with this name or id, as it is written.
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

func named[K ~string, V any](f Finder, t Table[K, V], key K, noun string) (row V, _ *model.Error) {
	if row, ok := t.Get(key); ok && f.sees(noun+"/"+string(key)) {
		return row, nil
	}
	if plant.Is(plant.PrefixInWrites) {
		return findPrefix(f, t, key, noun)
	}
	return row, model.NoSuch(noun, string(key), beginning(t, key, f.seesRow(noun)))
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

func findExactOrPrefix[K ~string, V any](f Finder, t Table[K, V], key K, noun string) (V, *model.Error) {
	if row, ok := t.Get(key); ok && f.sees(noun+"/"+string(key)) {
		return row, nil
	}
	return findPrefix(f, t, key, noun)
}

// findPrefix returns the only row whose key begins with prefix. Codes: not_found, ambiguous.
func findPrefix[K ~string, V any](f Finder, t Table[K, V], prefix K, noun string) (row V, _ *model.Error) {
	near := beginning(t, prefix, f.seesRow(noun))
	switch len(near) {
	case 0:
		return row, model.NoSuch(noun, string(prefix), nil)
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
