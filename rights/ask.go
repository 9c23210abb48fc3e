package rights

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/model"
)

// Ask is one thing that a group of a submitted job asks of machines or of the cluster: which list of a Grant must
// allow it, and its name there.
type Ask struct {
	List string // "ports"
	Name string // "443"
}

// String returns the ask for people: "the port 443".
func (a Ask) String() string {
	if list, ok := askListOf(a.List); ok {
		return "the " + list.noun + " " + a.Name
	}
	return a.List + " " + a.Name
}

// askList is a list of a Grant about what jobs ask for. A new kind of ask is a field of Grant and of api.HeldGrant, and
// a row of askLists.
type askList struct {
	name string // of the key in role files
	noun string // of one ask, for people
	of   func(*Grant) *[]string
	asks func(*model.GroupSpec) []string
	// check returns a hint if a pattern is not valid, and "" if it is. It does not get the pattern "*".
	check   func(pattern string) (hint string)
	matches func(pattern, name string) bool
	// needed says that a grant without the list allows no such ask. Other lists restrict nothing if they are absent.
	needed bool
}

// anyName is the pattern that matches every name of an askList.
const anyName = "*"

var askLists = [...]askList{
	{"users", "user", func(g *Grant) *[]string { return &g.Users }, askedUsers, isGlob, model.MatchGlob, true},
	{"volume_paths", "volume path", func(g *Grant) *[]string { return &g.VolumePaths }, askedPaths, isPath, below,
		false},
	{"ports", "port", func(g *Grant) *[]string { return &g.Ports }, askedPorts, isPorts, inPorts, false},
	{"services", "service", func(g *Grant) *[]string { return &g.Services }, askedServices, isGlob, model.MatchGlob,
		false},
	{"budgets", "shared budget", func(g *Grant) *[]string { return &g.Budgets }, askedBudgets, isGlob, model.MatchGlob,
		false},
}

func askListOf(name string) (list *askList, ok bool) {
	i := slices.IndexFunc(askLists[:], func(l askList) bool { return l.name == name })
	if i < 0 {
		return nil, false
	}
	return &askLists[i], true
}

// AskLists returns the names of the lists of a Grant about what jobs ask for.
func AskLists() (names []string) {
	for _, list := range askLists {
		names = append(names, list.name)
	}
	return names
}

// Asks returns what a group asks for, sorted by list. A program without a user, a dynamic port and a service that is
// not exposed ask for no user and no port. A container may ask for root; see model.GroupSpec.Users.
func Asks(g *model.GroupSpec) (all []Ask) {
	for _, list := range askLists {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(list.asks(g)))) {
			all = append(all, Ask{list.name, name})
		}
	}
	return all
}

// ParseAsk parses LIST=NAME: "ports=443". Code: invalid.
func ParseAsk(text string) (Ask, *model.Error) {
	name, value, _ := strings.Cut(text, "=")
	list, ok := askListOf(name)
	if !ok || value == "" {
		return Ask{}, model.Refuse(model.CodeInvalid, "%q is nothing that a job asks for", model.ClipText(text, 100)).
			WithHint("write LIST=NAME, such as ports=443; the lists are: %s", strings.Join(AskLists(), ", "))
	}
	if list.name == "volume_paths" {
		value = path.Clean(value)
	}
	return Ask{name, value}, nil
}

// allows reports whether the grant allows an ask. It does not look at the verb.
func (g *Grant) allows(a Ask) bool {
	list, ok := askListOf(a.List)
	return ok && list.allows(*list.of(g), a.Name)
}

func (l *askList) allows(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return !l.needed
	}
	return slices.ContainsFunc(patterns, func(p string) bool { return p == anyName || l.matches(p, name) })
}

// free reports whether patterns allow every ask.
func (l *askList) free(patterns []string) bool {
	return len(patterns) == 0 && !l.needed || slices.Contains(patterns, anyName)
}

// asksFreely reports whether the grant allows every ask.
func (g *Grant) asksFreely() bool {
	return !slices.ContainsFunc(askLists[:], func(l askList) bool { return !l.free(*l.of(g)) })
}

// AsksFreely reports whether the caller may submit every job, whatever it asks for.
func (p *Permissions) AsksFreely() bool {
	_, ok := p.find(SubmitJob, func(g *Grant) bool { return g.everything() && g.asksFreely() })
	return ok
}

// Lacking returns the asks of a job that no grant of the caller for this job allows. If there is a grant for each of
// them, and none for all together, it returns all. It returns nothing to a caller that may not submit the job at all.
func (p *Permissions) Lacking(on Object) (all []Ask) {
	bare := on
	bare.Asks = nil
	if _, ok := p.May(SubmitJob, bare); !ok {
		return nil
	}
	if _, ok := p.May(SubmitJob, on); ok {
		return nil
	}
	for _, a := range on.Asks {
		bare.Asks = []Ask{a}
		if _, ok := p.May(SubmitJob, bare); !ok {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return on.Asks
	}
	return all
}

// Asked returns, for each list about what jobs ask for, the patterns that any grant of the caller to submit jobs has. A
// list that allows everything has the pattern "*"; one that allows nothing is empty.
func (p *Permissions) Asked() map[string][]string {
	all := map[string][]string{}
	for _, list := range askLists {
		patterns := []string{}
		if p.local {
			patterns = append(patterns, anyName)
		}
		for _, h := range p.held[SubmitJob] {
			if own := *list.of(h.Grant); list.free(own) {
				patterns = append(patterns, anyName)
			} else {
				patterns = append(patterns, own...)
			}
		}
		if slices.Contains(patterns, anyName) {
			patterns = []string{anyName}
		}
		all[list.name] = sorted(patterns)
	}
	return all
}

func askedUsers(g *model.GroupSpec) []string {
	return slices.DeleteFunc(g.Users(), func(user string) bool { return user == "" }) // the agent chooses one
}

func askedPaths(g *model.GroupSpec) (all []string) {
	for _, v := range g.Volumes {
		all = append(all, path.Clean(v.Path))
	}
	return all
}

func askedPorts(g *model.GroupSpec) (all []string) {
	for _, p := range g.Ports {
		if p.Static != 0 {
			all = append(all, strconv.Itoa(p.Static))
		}
	}
	for _, s := range g.Services {
		if s.Expose != 0 {
			all = append(all, strconv.Itoa(s.Expose))
		}
	}
	return all
}

func askedServices(g *model.GroupSpec) (all []string) {
	for _, s := range g.Services {
		all = append(all, s.Name)
	}
	return all
}

func askedBudgets(g *model.GroupSpec) (all []string) {
	for _, b := range g.Budgets {
		all = append(all, string(b))
	}
	return all
}

func isGlob(pattern string) string {
	if refusal := model.CheckGlob(pattern); refusal != nil {
		return refusal.Hint
	}
	return ""
}

func isPath(dir string) string {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || len(dir) > maxTo || strings.ContainsAny(dir, "*?[\\\x00") {
		return "write a directory such as /data, which allows what is below it too; without * and without / at the end"
	}
	return ""
}

// below reports whether a path is a directory or below it.
func below(dir, name string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

func isPorts(text string) string {
	if _, _, ok := parsePorts(text); !ok {
		return "write a port such as 443, or a range such as 8000-8999"
	}
	return ""
}

func inPorts(text, name string) bool {
	low, high, ok := parsePorts(text)
	port, is := parsePort(name)
	return ok && is && low <= port && port <= high
}

// parsePorts parses "443" or "8000-8999".
func parsePorts(text string) (low, high int, ok bool) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	low, okLow := parsePort(from)
	high, okHigh := parsePort(to)
	return low, high, okLow && okHigh && low <= high
}

func parsePort(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n < 1<<16 && strconv.Itoa(n) == text
}
