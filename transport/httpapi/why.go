package httpapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

type whyRead struct {
	ReadParams
	Subject string `query:"subject" required:"true" maxLength:"200" doc:"an id, name or unique prefix, or with its kind: node/n1, group/web/http" example:"web/http"`
}

func whyInstance(_ context.Context, r *reading, in *instanceRead) (api.Why, error) {
	i, refusal := r.FindInstance(in.ID)
	if refusal != nil {
		return api.Why{}, refusal
	}
	return r.why("instance/" + string(i.ID))
}

func (s *Server) why(ctx context.Context, r *reading, in *whyRead) (api.Why, error) {
	by := callerFrom(ctx)
	subject, err := r.subject(in.Subject, func() bool {
		return s.judge.mayDo(&r.State, by, "server.read") == nil && s.isServerName(ctx, in.Subject)
	})
	if err == nil { // before the work
		err = s.judge.mayDo(&r.State, by, explainVerb(subject), objectsAt(&r.State, subject)...)
	}
	if err != nil {
		return api.Why{}, err
	}
	return r.why(subject)
}

func (r *reading) why(subject string) (api.Why, error) {
	got, err := r.explain.Why(r.question(), subject)
	if err != nil {
		return api.Why{}, err
	}
	v := api.Why{
		Subject: got.Subject, State: r.veil.text(got.State), Since: wallTimeOrNil(got.Since), Chain: []api.WhyLink{},
		Considered: []api.WhyConsidered{},
		Blockers:   []api.DrainBlocker{}, Next: r.veil.text(got.Next),
	}
	for _, l := range got.Chain {
		v.Chain = append(v.Chain,
			api.WhyLink{Index: l.Index, Time: wallTime(l.Wall), Cause: l.Cause, Actor: l.Actor, Text: r.veil.text(l.Text)})
	}
	considered, others := r.veil.considered(got.Considered)
	v.Hidden = others
	for _, c := range considered {
		one := api.WhyConsidered{Node: r.nodeName(c.Node), NodeID: c.Node, ExcludedBy: c.ExcludedBy}
		if c.ExcludedBy == "" {
			one.Score = &c.Score
		}
		v.Considered = append(v.Considered, one)
	}
	for _, b := range got.Blockers {
		v.Blockers = append(v.Blockers, r.veil.blocker(b))
	}
	return v, nil
}

// isServerName reports whether text is the name or id of a server. It returns false if the servers can't be listed.
func (s *Server) isServerName(ctx context.Context, text string) bool {
	members, err := s.members(ctx)
	return err == nil && slices.ContainsFunc(members, func(m ServerEntry) bool {
		return m.Name == text || string(m.ID) == text
	})
}

// subject finds the object that text names: by kind and name, by exact id or name, or by a unique prefix. It returns
// the object as KIND/ID. If text is not exact and isServer returns true, subject refuses it, because there is nothing
// to explain about servers. Codes: not_found, ambiguous.
func (r *reading) subject(text string, isServer func() bool) (string, error) {
	if kind, ref, ok := strings.Cut(text, "/"); ok {
		if known, err := r.subjectOf(kind, ref); known != "" || err != nil {
			return known, err
		}
		return r.groupSubject(text)
	}
	var found []string
	var several error // the refusal of a kind with several matches
	for _, kind := range [...]string{"instance", "job", "node", "drain", "deployment"} {
		switch one, err := r.subjectOf(kind, text); {
		case isAmbiguous(err):
			several = err
		case err != nil:
		case strings.HasSuffix(one, "/"+text), kind == "node" && r.isNodeName(text):
			return one, nil // text is the exact name or id
		default:
			found = append(found, one)
		}
	}
	switch {
	case isServer():
		return "", model.Refuse(model.CodeNotFound, "%s is a server, which has nothing to explain", clip(text)).
			WithHint("see: outspan server members; to explain something else, give its kind: instance/%s", clip(text))
	case several != nil:
		return "", several
	case len(found) == 0:
		return "",
			r.noSubject("instance, job, node, drain or deployment", text,
				"see what there is with: outspan job ls; outspan node ls; outspan instance ls")
	case len(found) == 1:
		return found[0], nil
	}
	return "", model.Refuse(model.CodeAmbiguous, "%q can be %s", clip(text), strings.Join(found, " or ")).
		WithHint("give more characters, or the kind: %s", found[0])
}

func isAmbiguous(err error) bool {
	var known *model.Error
	return errors.As(err, &known) && known.Code == model.CodeAmbiguous
}

func (r *reading) isNodeName(text string) bool {
	n, refusal := r.FindNode(text)
	return refusal == nil && n.Name == text
}

// subjectOf finds an object of a kind. It returns "" and no error if kind is not the name of a kind.
func (r *reading) subjectOf(kind, ref string) (string, error) {
	switch kind {
	case "instance":
		i, refusal := r.FindInstance(ref)
		if refusal != nil {
			return "", refusal
		}
		return "instance/" + string(i.ID), nil
	case "node":
		n, refusal := r.FindNode(ref)
		if refusal != nil {
			return "", refusal
		}
		return "node/" + string(n.ID), nil
	case "job":
		j, refusal := r.FindJob(ref)
		if refusal != nil {
			return "", refusal
		}
		return "job/" + string(j.Name), nil
	case "drain":
		d, refusal := r.FindDrain(ref)
		if refusal != nil {
			return "", refusal
		}
		return "drain/" + string(d.ID), nil
	case "deployment":
		d, refusal := r.FindDeployment(ref)
		if refusal != nil {
			return "", refusal
		}
		return "deployment/" + string(d.ID), nil
	case "group":
		return r.groupSubject(ref)
	}
	return "", nil
}

func (r *reading) groupSubject(text string) (string, error) {
	if g, ok := r.Groups.Get(model.GroupID(text)); ok && r.Sees("group/"+text) {
		return "group/" + string(g.ID), nil
	}
	return "", r.noSubject("group", text, "write JOB/GROUP; list them with: outspan job status JOB")
}

// noSubject returns the error for a text that names nothing. Its hint contains similar names.
func (r *reading) noSubject(nouns, text, list string) *model.Error {
	hint := list
	if near := r.Similar(text); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "? " + list
	}
	return model.Refuse(model.CodeNotFound, "there is no %s %q", nouns, clip(text)).WithHint("%s", hint)
}
