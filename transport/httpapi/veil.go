package httpapi

import (
	"regexp"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

// hidden stands in answers for the name of something that the caller may not see.
const hidden = "hidden"

// veil takes the names of what a caller may not see out of answers that mention other things than their own object. As
// in judge.sight, the caller sees what it may read, the jobs and nodes of instances that it may read, and the nodes
// that the verb of the operation allows. A nil veil hides nothing. A name that nothing has any more stays.
type veil struct {
	state *fsm.State
	read  func(subject string) bool
	named func(subject string) bool
}

// veil returns the veil of a caller of an operation, nil if the caller may see everything.
func (j *judge) veil(state *fsm.State, c caller, verb rights.Verb) *veil {
	read := j.sight(state, c, noRight)
	if read == nil {
		return nil
	}
	v := &veil{state, read, read}
	if info, _ := verb.Info(); info.Scope&rights.ScopeNode != 0 {
		v.named = j.sight(state, c, verb)
	}
	return v
}

func (v *veil) shows(kind, id string) bool {
	switch {
	case v == nil || id == "":
		return true
	case kind == "group" || kind == "volume":
		job, _, _ := strings.Cut(id, "/")
		return v.read("job/" + job)
	case kind == "node":
		return v.read("node/"+id) || v.named("node/"+id)
	}
	return v.read(kind + "/" + id)
}

// veiled returns the name of an object of a kind, or hidden.
func veiled[T ~string](v *veil, kind string, id T) T {
	if v.shows(kind, string(id)) {
		return id
	}
	return hidden
}

// veiledAll is veiled for a list of instances. The result is not nil.
func veiledAll(v *veil, ids []model.InstanceID) []model.InstanceID {
	all := []model.InstanceID{}
	for _, id := range ids {
		all = append(all, veiled(v, "instance", id))
	}
	return all
}

var (
	veilWord = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._/-]*`)
	veilNoun = regexp.MustCompile(`(?:instance|node|job|group|volume|drain|deployment|transfer) $`)
)

// text returns a text in which phrases replace the names of what the caller may not see.
func (v *veil) text(text string) string {
	if v == nil || text == "" {
		return text
	}
	var out strings.Builder
	from := 0
	for _, at := range veilWord.FindAllStringIndex(text, -1) {
		word, afterJob := text[at[0]:at[1]], strings.HasSuffix(strings.TrimRight(text[:at[0]], `"'`), "job ")
		phrase := v.phrase(word, afterJob)
		for phrase == "" && strings.ContainsAny(word[len(word)-1:], "._/-") { // of a name, or a sentence's end
			word = word[:len(word)-1]
			phrase = v.phrase(word, afterJob)
		}
		if phrase == "" {
			continue
		}
		before := text[from:at[0]]
		out.WriteString(before[:len(before)-len(veilNoun.FindString(before))])
		out.WriteString(phrase)
		from = at[0] + len(word)
	}
	out.WriteString(text[from:])
	return out.String()
}

// phrase returns what replaces a word, "" if the word stays. A word that names several things is replaced if one of
// them is hidden. A job's name alone is replaced only after the word job, because names of jobs are often words of the
// language.
func (v *veil) phrase(word string, afterJob bool) string {
	for _, kind := range v.kinds(word, afterJob) {
		switch {
		case v.shows(kind, word):
		case kind == "instance":
			return "an instance you may not see (job hidden)"
		default:
			return "a " + kind + " you may not see"
		}
	}
	if kind, rest, ok := strings.Cut(word, "/"); ok && readVerbs[kind] != "" { // as in node/n1
		return v.phrase(rest, kind == "job")
	}
	return ""
}

func (v *veil) isNode(word string) bool {
	_, is := v.state.NodeCalled(word)
	return is
}

// kinds returns the kinds of the things that a word names.
func (v *veil) kinds(word string, afterJob bool) (all []string) {
	s := v.state
	_, _, unknown := s.UnknownOn(model.InstanceID(word))
	first, rest, slash := strings.Cut(word, "/")
	slash = slash && s.Jobs.Has(model.JobName(first))
	for _, one := range [...]struct {
		kind string
		is   bool
	}{
		{"instance", unknown || s.Instances.Has(model.InstanceID(word))},
		{"node", v.isNode(word)},
		{"deployment", s.Deployments.Has(model.DeploymentID(word))},
		{"drain", s.Drains.Has(model.DrainID(word))},
		{"transfer", s.Transfers.Has(model.TransferID(word))},
		{"volume", slash && strings.Contains(rest, "/")},
		{"group", slash && !strings.Contains(rest, "/")},
		{"job", afterJob && s.Jobs.Has(model.JobName(word))},
	} {
		if one.is {
			all = append(all, one.kind)
		}
	}
	return all
}

// rejected returns the nodes that a drain was not started for, without what the caller may not see. The result is not
// nil.
func (v *veil) rejected(all []model.DrainRefusal) []model.DrainRefusal {
	out := slices.Clone(notNil(all))
	for i := range out {
		one := &out[i]
		one.Message = v.text(one.Message)
		if v != nil && v.isNode(one.Node) {
			one.Node = veiled(v, "node", one.Node)
		}
	}
	return out
}

// blocker returns a blocker for the caller. What would unblock it is left out if that names what is hidden.
func (v *veil) blocker(b model.Blocker) api.DrainBlocker {
	out := api.DrainBlocker{Code: b.Code, Instance: veiled(v, "instance", b.Instance),
		Volume: veiled(v, "volume", b.Volume), Message: v.text(b.Message), Unblock: b.Unblock}
	if v.text(b.Unblock) != b.Unblock {
		out.Unblock = "ask somebody who may see what is hidden here"
	}
	return out
}

// considered splits nodes that placement looked at into those that the caller may see, and the number of the others.
func (v *veil) considered(all []model.Considered) (seen []model.Considered, others int) {
	for _, c := range all {
		if v.shows("node", string(c.Node)) {
			seen = append(seen, c)
		}
	}
	return seen, len(all) - len(seen)
}

// forecast hides what the caller may not see of a forecast.
func (v *veil) forecast(f api.DrainForecast) api.DrainForecast {
	if v == nil {
		return f
	}
	b := v.blocker(model.Blocker{Code: f.Blocker, Instance: f.Instance, Volume: f.Volume, Message: f.Message,
		Unblock: f.Unblock})
	if !v.shows("group", string(f.Group)) {
		f.Group, f.Member = hidden, veiled(v, "group", f.Member)
	}
	f.Instance, f.Volume, f.Message, f.Unblock = b.Instance, b.Volume, b.Message, b.Unblock
	f.Target, f.Note = veiled(v, "node", f.Target), v.text(f.Note)
	return f
}

// lane hides what the caller may not see of a lane.
func (v *veil) lane(l *api.DrainLane) {
	if v == nil {
		return
	}
	if !v.shows("group", string(l.Group)) {
		l.Group, l.Slot, l.Pulling = hidden, 0, veiled(v, "group", l.Pulling)
	}
	l.Instance, l.Replacement = veiled(v, "instance", l.Instance), veiled(v, "instance", l.Replacement)
	l.Target = veiled(v, "node", l.Target)
}
