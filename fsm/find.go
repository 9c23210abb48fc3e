package fsm

import (
	"strings"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// There are two ways to look up a row by its name or id. The Find methods are for reads, and also accept a unique
// prefix. The Named methods are for writes, and accept only whole names and ids, so that a command for `api` never
// reaches `api-prod`. The exception is NamedInstance, which accepts a unique prefix of at least 6 characters, because
// nobody chooses the ids of instances.

// FindNode finds a node by its name, its id, or a unique prefix of its id. Codes: not_found, ambiguous.
func (s *State) FindNode(nameOrID string) (*Node, *model.Error) {
	if n, ok := s.node(nameOrID); ok {
		return n, nil
	}
	n, refusal := findPrefix(s.Nodes, model.NodeID(nameOrID), "node")
	return n, s.suggest("node", nameOrID, refusal)
}

// FindInstance finds an instance by id or unique id prefix. If prefix is the whole id of an instance that an agent runs
// but the state does not know, the refusal names its node. Codes: not_found, ambiguous.
func (s *State) FindInstance(prefix string) (*Instance, *model.Error) {
	inst, refusal := findExactOrPrefix(s.Instances, model.InstanceID(prefix), "instance")
	if refusal == nil || refusal.Code != model.CodeNotFound {
		return inst, refusal
	}
	if n, h, ok := s.UnknownOn(model.InstanceID(prefix)); ok {
		return nil,
			model.Refuse(model.CodeNotFound, "instance %s runs on node %s, and the restored state does not know it",
				h.ID, n.Name).
				WithHint("see: outspan node status %s; what confirming the restore does with it: outspan settings resume "+
					"restore --dry-run", n.Name)
	}
	return nil, s.suggest("instance", prefix, refusal)
}

// FindDrain finds a drain by id or unique id prefix. Codes: not_found, ambiguous.
func (s *State) FindDrain(prefix string) (*Drain, *model.Error) {
	return orSimilar(s, findExactOrPrefix, s.Drains, model.DrainID(prefix), "drain")
}

// FindJob finds a job by name or unique prefix. Codes: not_found, ambiguous.
func (s *State) FindJob(prefix string) (*Job, *model.Error) {
	return orSimilar(s, findExactOrPrefix, s.Jobs, model.JobName(prefix), "job")
}

// FindDeployment finds a deployment by id or unique id prefix. Codes: not_found, ambiguous.
func (s *State) FindDeployment(prefix string) (*Deployment, *model.Error) {
	return orSimilar(s, findExactOrPrefix, s.Deployments, model.DeploymentID(prefix), "deployment")
}

// FindVolume finds a volume by id or unique id prefix. Codes: not_found, ambiguous.
func (s *State) FindVolume(prefix string) (*Volume, *model.Error) {
	return orSimilar(s, findExactOrPrefix, s.Volumes, model.VolumeID(prefix), "volume")
}

// FindTransfer finds a transfer by id or unique id prefix. Codes: not_found, ambiguous.
func (s *State) FindTransfer(prefix string) (*Transfer, *model.Error) {
	return orSimilar(s, findExactOrPrefix, s.Transfers, model.TransferID(prefix), "transfer")
}

// FindBackup finds a backup by id or unique id prefix. Codes: not_found, ambiguous.
func (s *State) FindBackup(prefix string) (*Backup, *model.Error) {
	return orSimilar(s, findExactOrPrefix, s.Backups, model.BackupID(prefix), "backup")
}

// NamedNode returns the node with this name or id. Code: not_found.
func (s *State) NamedNode(nameOrID string) (*Node, *model.Error) {
	if n, ok := s.node(nameOrID); ok {
		return n, nil
	}
	near := beginning(s.nodeNames, nameOrID)
	for _, id := range beginning(s.Nodes, model.NodeID(nameOrID)) {
		n, _ := s.Nodes.Get(model.NodeID(id))
		near = append(near, n.Name)
	}
	return nil, s.suggest("node", nameOrID, model.NoSuch("node", nameOrID, near))
}

// NamedJob returns the job with this name. Code: not_found.
func (s *State) NamedJob(name string) (*Job, *model.Error) {
	return orSimilar(s, named, s.Jobs, model.JobName(name), "job")
}

// NamedDrain returns the drain with this id. Code: not_found.
func (s *State) NamedDrain(id string) (*Drain, *model.Error) {
	return orSimilar(s, named, s.Drains, model.DrainID(id), "drain")
}

// NamedDeployment returns the deployment with this id. Code: not_found.
func (s *State) NamedDeployment(id string) (*Deployment, *model.Error) {
	return orSimilar(s, named, s.Deployments, model.DeploymentID(id), "deployment")
}

// NamedVolume returns the volume with this id. Code: not_found.
func (s *State) NamedVolume(id string) (*Volume, *model.Error) {
	return orSimilar(s, named, s.Volumes, model.VolumeID(id), "volume")
}

// NamedTransfer returns the transfer with this id. Code: not_found.
func (s *State) NamedTransfer(id string) (*Transfer, *model.Error) {
	return orSimilar(s, named, s.Transfers, model.TransferID(id), "transfer")
}

// NamedBackup returns the backup with this id. Code: not_found.
func (s *State) NamedBackup(id string) (*Backup, *model.Error) {
	return orSimilar(s, named, s.Backups, model.BackupID(id), "backup")
}

// minInstancePrefix is the smallest length of a prefix that NamedInstance accepts.
const minInstancePrefix = 6

// NamedInstance returns the instance with this id. An id of at least 6 characters may also be a unique prefix. Codes:
// not_found, ambiguous.
func (s *State) NamedInstance(id string) (*Instance, *model.Error) {
	if len(id) < minInstancePrefix {
		inst, refusal := named(s.Instances, model.InstanceID(id), "instance")
		plain := refusal
		if refusal = s.suggest("instance", id, refusal); refusal == plain && refusal != nil && id != "" {
			refusal = refusal.WithHint("give the id of an instance, or at least %d characters of it; list them with: "+
				"outspan instance ls", minInstancePrefix)
		}
		return inst, refusal
	}
	return s.FindInstance(id)
}

func (s *fleet) node(nameOrID string) (*Node, bool) {
	if n, ok := s.Nodes.Get(model.NodeID(nameOrID)); ok {
		return n, true
	}
	id, ok := s.nodeNames.Get(nameOrID)
	if !ok {
		return nil, false
	}
	return s.Nodes.Get(id)
}

func named[K ~string, V any](t Table[K, V], key K, noun string) (row V, _ *model.Error) {
	if row, ok := t.Get(key); ok {
		return row, nil
	}
	if plant.Is(plant.PrefixInWrites) {
		return findPrefix(t, key, noun)
	}
	return row, model.NoSuch(noun, string(key), beginning(t, key))
}

// maxNear bounds the similar names that a refusal lists.
const maxNear = 3

// beginning returns the first keys that begin with prefix, at most maxNear. It returns nil if prefix is empty.
func beginning[K ~string, V any](t Table[K, V], prefix K) []string {
	var found []string
	if prefix == "" {
		return nil
	}
	for key := range t.From(prefix) {
		if !strings.HasPrefix(string(key), string(prefix)) || len(found) == maxNear {
			break
		}
		found = append(found, string(key))
	}
	return found
}

func findExactOrPrefix[K ~string, V any](t Table[K, V], key K, noun string) (V, *model.Error) {
	if row, ok := t.Get(key); ok {
		return row, nil
	}
	return findPrefix(t, key, noun)
}

// findPrefix returns the only row whose key begins with prefix. Codes: not_found, ambiguous.
func findPrefix[K ~string, V any](t Table[K, V], prefix K, noun string) (row V, _ *model.Error) {
	near := beginning(t, prefix)
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
