package httpapi

import (
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// checkTypes returns an error if no event can have one of the types. Without the error, an empty stream would look as
// if nothing had happened. Code: invalid.
func checkTypes(types []string) error {
	var known, areas []string
	for _, t := range model.EventTypes() {
		area, _, _ := strings.Cut(string(t), ".")
		known, areas = append(known, string(t)), append(areas, area+".")
	}
	areas = slices.Compact(areas)
	for _, t := range types {
		if slices.Contains(known, t) || slices.Contains(areas, t) {
			continue
		}
		refusal := model.Refuse(model.CodeInvalid, "there are no events of type %q", clip(t))
		if near := nearest(t, append(slices.Clone(areas), known...)); near != "" {
			return refusal.WithHint("did you mean: %s", near)
		}
		return refusal.WithHint("the types are: %s; node. stands for all that begin so", strings.Join(known, ", "))
	}
	return nil
}

// findSubjects converts words such as node/NAME, or KIND/ID with a unique prefix of an id, to subjects of events. It
// returns an error if a word names neither an object of the state nor the subject of a kept event. If follow is true, a
// word may also be the name of an object that does not exist yet. Codes: invalid, not_found, ambiguous.
func findSubjects(state *fsm.State, words []string, follow bool) ([]string, error) {
	found := make([]string, 0, len(words))
	for _, word := range words {
		subject, err := findSubject(state, word, follow)
		if err != nil {
			return nil, err
		}
		found = append(found, subject)
	}
	return found, nil
}

func findSubject(state *fsm.State, word string, follow bool) (string, error) {
	kind, ref, slash := strings.Cut(word, "/")
	alone := kind == "cluster" || kind == "settings"
	switch known := model.EventSubjects(); {
	case !slices.Contains(known, kind):
		refusal := model.Refuse(model.CodeInvalid, "%q is no subject of events", clip(word))
		if near := nearest(kind, known); near != "" && slash {
			return "", refusal.WithHint("did you mean: %s/%s", near, clip(ref))
		}
		return "",
			refusal.WithHint("write KIND/ID, such as node/NAME or job/NAME; the kinds are: %s", strings.Join(known, ", "))
	case !slash && !alone:
		return "", model.Refuse(model.CodeInvalid, "%q names no %s", clip(word), kind).
			WithHint("write %s/ID, or %s/ for all that begin so", kind, kind)
	case ref == "" || alone:
		return word, nil
	}
	id, refusal := findOfKind(state, kind, ref)
	if refusal == nil && id == ref || hasEvents(state, word) {
		return word, nil
	}
	named := kind != "node" && kind != "instance" && kind != "drain"
	switch {
	case refusal == nil:
		return kind + "/" + id, nil
	case named && follow && refusal.Code == model.CodeNotFound:
		return word, nil
	}
	return "", refusal
}

// findOfKind returns the id of the object of this kind whose name or id is ref, or begins with ref.
func findOfKind(state *fsm.State, kind, ref string) (string, *model.Error) {
	var id string
	var refusal *model.Error
	all := state.Finder(nil) // whoever reads events reads those of everything
	switch kind {
	case "node":
		n, none := all.FindNode(ref)
		if refusal = none; none == nil {
			id = string(n.ID)
		}
	case "instance":
		i, none := all.FindInstance(ref)
		if refusal = none; none == nil {
			id = string(i.ID)
		}
	case "drain":
		d, none := all.FindDrain(ref)
		if refusal = none; none == nil {
			id = string(d.ID)
		}
	case "job":
		j, none := all.FindJob(ref)
		if refusal = none; none == nil {
			id = string(j.Name)
		}
	case "deployment":
		d, none := all.FindDeployment(ref)
		if refusal = none; none == nil {
			id = string(d.ID)
		}
	case "volume":
		v, none := all.FindVolume(ref)
		if refusal = none; none == nil {
			id = string(v.ID)
		}
	default: // budgets, classes and groups have only names, which are not checked here
		id = ref
	}
	return id, refusal
}

func hasEvents(state *fsm.State, subject string) bool {
	for range state.Events.Find(0, func(_ model.EventType, s string) bool { return s == subject }) {
		return true
	}
	return false
}

// since parses text as a time, or as a duration that ends now. It returns the position before the first event at or
// after the time. Code: invalid.
func (s *Server) since(state fsm.State, text string) (fsm.EventKey, error) {
	from, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		ago, bad := model.ParseDuration(text)
		if bad != nil || ago < 0 || ago == model.Forever {
			return 0, model.Refuse(model.CodeInvalid, "since is neither a time nor a duration").
				WithHint("write 30m, 2026-01-31T12:00:00Z, or the id of an event, such as 1042.0")
		}
		from = s.reading().wall.Add(-time.Duration(ago) * time.Millisecond)
	}
	for key, e := range state.Events.From(0) {
		if e.Wall >= from.UnixMilli() {
			if oldest, _, _ := state.Events.Min(); key == oldest {
				return 0, nil
			}
			return key - 1, nil
		}
	}
	return newest(state), nil
}
