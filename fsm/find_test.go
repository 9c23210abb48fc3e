package fsm

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// TestFindAndNamed: functions such as FindJob accept the beginning of a name if only one name begins that way.
// Functions such as NamedJob need the whole name. For an instance, the first six characters of its id are enough.
// Refusals suggest similar names.
func TestFindAndNamed(t *testing.T) {
	m := NewMachine()
	mustApply(t, m, &ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for _, id := range []model.NodeID{"node-1", "node-2"} {
		node := register(id)
		node.Name = string(id[len("node-"):]) + ".local"
		mustApply(t, m, node)
	}
	s := m.State()
	s = *s.fork()
	for _, name := range []string{"api", "api-a", "api-b", "api-c", "web-prod"} {
		s.Jobs.put(model.JobName(name), &Job{Name: model.JobName(name)})
		s.Drains.put(model.DrainID(name), &Drain{ID: model.DrainID(name)})
		s.Deployments.put(model.DeploymentID(name), &Deployment{ID: model.DeploymentID(name)})
		s.Volumes.put(model.VolumeID(name), &Volume{})
		s.Transfers.put(model.TransferID(name), &Transfer{ID: model.TransferID(name)})
		s.Backups.put(model.BackupID(name), &Backup{})
		s.Instances.put(model.InstanceID(name), &Instance{ID: model.InstanceID(name)})
	}
	all := s.Finder(nil)
	type finder struct {
		noun        string
		find, named func(string) *model.Error
	}
	finders := []finder{
		{"job", func(n string) *model.Error {
			return found(all.FindJob(n))
		}, func(n string) *model.Error { return found(all.NamedJob(n)) }},
		{"drain", func(n string) *model.Error { return found(all.FindDrain(n)) },
			func(n string) *model.Error { return found(all.NamedDrain(n)) }},
		{"deployment", func(n string) *model.Error { return found(all.FindDeployment(n)) },
			func(n string) *model.Error { return found(all.NamedDeployment(n)) }},
		{"volume", func(n string) *model.Error { return found(all.FindVolume(n)) },
			func(n string) *model.Error { return found(all.NamedVolume(n)) }},
		{"transfer", func(n string) *model.Error { return found(all.FindTransfer(n)) },
			func(n string) *model.Error { return found(all.NamedTransfer(n)) }},
		{"backup", func(n string) *model.Error { return found(all.FindBackup(n)) },
			func(n string) *model.Error { return found(all.NamedBackup(n)) }},
		{"instance", func(n string) *model.Error { return found(all.FindInstance(n)) },
			func(n string) *model.Error { return found(all.NamedInstance(n)) }},
	}
	verbs := map[string]string{"transfer": "volume ls", "backup": "volume backups"}
	for _, f := range finders {
		verb := verbs[f.noun]
		if verb == "" {
			verb = f.noun + " ls"
		}
		for _, name := range []string{"api", "api-b", "web", "web-prod"} {
			if refusal := f.find(name); refusal != nil {
				t.Errorf("find %s %s: %v", f.noun, name, refusal)
			}
		}
		refusedWith(t, f.noun, f.find("api-"), model.CodeAmbiguous, "more than one "+f.noun)
		refusedWith(t, f.noun, f.find("x"), model.CodeNotFound, verb)
		if refusal := f.named("api"); refusal != nil {
			t.Errorf("named %s: %v", f.noun, refusal)
		}
		if f.noun == "instance" { // six characters of an id are enough
			if refusal := f.named("web-pr"); refusal != nil {
				t.Errorf("instance: %v", refusal)
			}
			refusedWith(t, f.noun, f.named("web-p"), model.CodeNotFound, "at least 6 characters")
			continue
		}
		refusedWith(t, f.noun, f.named("web-pr"), model.CodeNotFound, "did you mean web-prod?")
		refusedWith(t, f.noun, f.named("ap"), model.CodeNotFound, "did you mean api or api-a or api-b?")
		refusedWith(t, f.noun, f.named("x"), model.CodeNotFound, verb)
		refusedWith(t, f.noun, f.named(""), model.CodeNotFound, verb)
	}
	for _, name := range []string{"node-1", "1.local"} {
		if n, refusal := all.FindNode(name); refusal != nil || n.ID != "node-1" {
			t.Errorf("find node %s: %v %v", name, n, refusal)
		}
		if n, refusal := all.NamedNode(name); refusal != nil || n.ID != "node-1" {
			t.Errorf("named node %s: %v %v", name, n, refusal)
		}
	}
	refusedWith(t, "node", found(all.FindNode("node")), model.CodeAmbiguous, "more than one node")
	refusedWith(t, "node", found(all.NamedNode("node-")), model.CodeNotFound, "did you mean 1.local or 2.local?")
	refusedWith(t, "node", found(all.NamedNode("2.lo")), model.CodeNotFound, "did you mean 2.local?")
	refusedWith(t, "node", found(all.NamedNode("x")), model.CodeNotFound, "node ls")
	refusedWith(t, "job", found(all.FindJob("ap-ia")), model.CodeNotFound, "did you mean api-a?")
	refusedWith(t, "job", found(all.NamedJob("web-porb")), model.CodeNotFound, "web-prod?")
	refusedWith(t, "node", found(all.FindNode("1.locla")), model.CodeNotFound, "did you mean 1.local?")
	refusedWith(t, "job", found(all.FindJob("node-1")), model.CodeNotFound, "node-1 is a node: outspan node status node-1")
	refusedWith(t, "node", found(all.NamedNode("api-c")), model.CodeNotFound, "api-c is a job: outspan job status api-c")
	refusedWith(t, "instance", found(all.FindInstance("1.local")), model.CodeNotFound,
		"1.local is a node: outspan instance ls --node 1.local")
	refusedWith(t, "instance", found(all.NamedInstance("api-x")), model.CodeNotFound, "at least 6 characters")
	s.Jobs.put("shop", &Job{Name: "shop"})
	refusedWith(t, "instance", found(all.NamedInstance("shop")), model.CodeNotFound,
		"shop is a job: outspan instance ls --job shop")
	refusedWith(t, "drain", found(all.FindDrain("api-")), model.CodeAmbiguous, "it may be api-a, api-b or api-c")
	refusedWith(t, "server", model.NoSuch("server", "x", nil), model.CodeNotFound, "server members")
}

func refusedWith(t *testing.T, noun string, refusal *model.Error, code model.Code, text string) {
	t.Helper()
	if refusal == nil || refusal.Code != code || !strings.Contains(refusal.Message+" "+refusal.Hint, text) {
		t.Errorf("%s: %v, want %s with %q", noun, refusal, code, text)
	}
}

// found returns the refusal of a search, or an internal error if the search returned neither a row nor a refusal.
func found[V comparable](row V, refusal *model.Error) *model.Error {
	var none V
	if refusal == nil && row == none {
		return model.Refuse(model.CodeInternal, "neither a row nor a refusal")
	}
	return refusal
}
