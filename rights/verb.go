package rights

import (
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Verb is what a caller does to one kind of thing: "node.drain", "job.submit". The part before the dot is its noun.
type Verb string

// Scope says which lists of a Grant can restrict a verb, because the thing that the verb acts on has such a name.
type Scope uint8

// The scopes. A verb about instances or volumes has those of their job, and of the node that they are on.
const (
	ScopeJob Scope = 1 << iota
	ScopeNode
	ScopeClass // of a job, or the class itself
)

const scopeWork = ScopeJob | ScopeNode | ScopeClass

// VerbText describes a verb for people.
type VerbText struct {
	Verb  Verb   `json:"verb"`
	Scope Scope  `json:"-"`
	Text  string `json:"text"` // what it allows
}

// SubmitJob is the verb that a caller needs to submit a job. What the job asks for restricts it: see Asks.
const SubmitJob Verb = "job.submit"

// verbs is the list that Verbs returns. Every operation of the API names one of these, next to its route.
var verbs = [...]VerbText{
	{"node.read", ScopeNode, "see nodes, drains, and what blocks them"},
	{"node.drain", ScopeNode, "drain nodes; pause, resume and cancel drains"},
	{"node.cordon", ScopeNode, "cordon and uncordon nodes"},
	{"node.enable", ScopeNode, "enable and disable nodes"},
	{"node.label", ScopeNode, "set labels of nodes"},
	{"node.ack", ScopeNode, "accept what blocks a drain"},
	{"node.confirm-dead", ScopeNode, "say that a machine is off for certain"},
	{"node.prune", ScopeNode, "delete images that nothing on a node needs"},
	{"node.forget", ScopeNode, "remove nodes that are gone"},
	{"node.approve", ScopeNode, "approve and reject machines that wait to join"},
	{"node.revoke", ScopeNode, "end the certificate of a node"},

	{"job.read", ScopeJob | ScopeClass, "see jobs, with their environment, versions and deployments"},
	{"job.plan", ScopeJob | ScopeClass, "see what a job file would change"},
	{"job.submit", ScopeJob | ScopeClass, "run, change and revert jobs"},
	{"job.scale", ScopeJob | ScopeClass, "change the counts of groups"},
	{"job.restart", ScopeJob | ScopeClass, "restart jobs"},
	{"job.stop", ScopeJob | ScopeClass, "stop jobs"},
	{"job.deploy", ScopeJob | ScopeClass, "promote and fail deployments"},

	{"instance.read", scopeWork, "see instances, what they use, and services"},
	{"instance.logs", scopeWork, "read what instances print"},
	{"instance.exec", scopeWork, "run commands in instances, with their rights and environment"},
	{"instance.forward", scopeWork, "connect to ports of instances through a server"},
	{"instance.restart", scopeWork, "restart instances"},
	{"instance.stop", scopeWork, "stop instances"},
	{"instance.evict", scopeWork, "move instances to other nodes"},

	{"volume.read", scopeWork, "see volumes, backups and transfers"},
	{"volume.backup", scopeWork, "back up volumes"},
	{"volume.restore", scopeWork, "put backups and found volumes back"},
	{"volume.migrate", scopeWork, "move volumes; cancel transfers"},
	{"volume.forget", scopeWork, "delete backups"},

	{"budget.read", 0, "see budgets"},
	{"budget.set", 0, "change and remove budgets"},
	{"class.read", ScopeClass, "see classes"},
	{"class.set", ScopeClass, "change and remove classes"},
	{"settings.read", 0, "see the settings"},
	{"settings.set", 0, "change the settings"},
	{"cluster.pause", 0, "pause and resume what the cluster does by itself"},
	{"cluster.rebalance", 0, "spread instances evenly"},

	{"event.read", 0, "see events of everything"},
	{"server.read", 0, "see status, members and problems"},
	{"server.manage", 0, "add, promote and remove servers, and hand leadership over"},
	{"server.approve", 0, "approve and reject servers that wait to join"},
	{"server.revoke", 0, "end the certificate of a server"},
	{"snapshot.save", 0, "copy the whole state, with all environments"},
	{"snapshot.restore", 0, "replace the whole state"},

	{"trust.read", 0, "see join tokens, certificates, CAs and keys"},
	{"token.create", 0, "make join tokens"},
	{"token.revoke", 0, "revoke join tokens"},
	{"cert.create", 0, "make certificates of people"},
	{"cert.revoke", 0, "revoke certificates of people"},
	{"trust.rotate", 0, "rotate the CA, the gossip key and the keyring"},

	{"auth.read", 0, "see roles and bindings, and ask what others may do"},
	{"auth.set", 0, "change roles and bindings"},
	{"auth.token", 0, "make and revoke access tokens"},
}

// Verbs returns all verbs. The result is the caller's.
func Verbs() []VerbText { return slices.Clone(verbs[:]) }

// Info returns the description of a verb. ok is false if there is no such verb.
func (v Verb) Info() (text VerbText, ok bool) {
	i := slices.IndexFunc(verbs[:], func(t VerbText) bool { return t.Verb == v })
	if i < 0 {
		return VerbText{}, false
	}
	return verbs[i], true
}

// Noun returns the part of the verb before the dot.
func (v Verb) Noun() string {
	noun, _, _ := strings.Cut(string(v), ".")
	return noun
}

// VerbPattern is a verb, all verbs of a noun ("job.*"), or all verbs ("*").
type VerbPattern string

// Matches reports whether the pattern includes a verb.
func (p VerbPattern) Matches(v Verb) bool {
	return p == "*" || Verb(p) == v || string(p) == v.Noun()+".*"
}

// Check refuses a pattern that includes no verb. The hint has the most similar verb, if there is one. Code: invalid.
func (p VerbPattern) Check() *model.Error {
	if slices.ContainsFunc(verbs[:], func(t VerbText) bool { return p.Matches(t.Verb) }) {
		return nil
	}
	refusal := model.Refuse(model.CodeInvalid, "there is no verb %q", model.ClipText(string(p), 100))
	near, least := "", min(len(p)/3, 3)+1
	for _, t := range verbs {
		if d := model.Distance(string(p), string(t.Verb)); d < least {
			near, least = string(t.Verb), d
		}
	}
	if near != "" {
		return refusal.WithHint("did you mean %s? list them with: outspan role verbs", near)
	}
	return refusal.WithHint("list them with: outspan role verbs")
}

// Lists returns the names of the lists of a Grant that can restrict a verb of this scope.
func (s Scope) Lists() (names []string) {
	for _, one := range [...]struct {
		scope Scope
		name  string
	}{{ScopeJob, "jobs"}, {ScopeNode, "nodes"}, {ScopeClass, "classes"}} {
		if s&one.scope != 0 {
			names = append(names, one.name)
		}
	}
	return names
}

// Lists returns the names of the lists of a Grant that can restrict the verb, for SubmitJob also those about what jobs
// ask for.
func (t VerbText) Lists() []string {
	if t.Verb == SubmitJob {
		return append(t.Scope.Lists(), AskLists()...)
	}
	return t.Scope.Lists()
}
