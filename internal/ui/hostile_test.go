package ui

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// hostile are texts that a page must not take for anything but texts.
var hostile = []string{
	`<img src=x onerror="window.hacked=1">`, `<script>window.hacked=1</script>`, `"><svg onload=window.hacked=1>`,
	`javascript:window.hacked=1`, `' onfocus='window.hacked=1' autofocus='`, "\u202eesrever\u202c \u2066x\u200f",
	`https://evil.test/x.png`, strings.Repeat("very", 500), `a/b%2F..?c=d#e&f`, "two\nlines\x00 \x1b[31mred",
	`</title><base href="//evil.test/">`, `__proto__`, `constructor`, "$(touch /tmp/x); `y` | z", ``, ` `,
}

// freeKeys are the maps whose keys come from people.
var freeKeys = []string{"labels", "attributes", "ports", "data"}

// closed are fields with a few values or a form of their own, on which it depends what the page shows.
var closed = []string{"state", "intent", "health", "phase", "status", "desired", "observed", "action", "time", "since",
	"last_seen", "deadline", "after", "subject", "verbs", "role", "type", "from", "step", "unit"}

// poison returns the value v with each string replaced by a hostile text, in turn. With keep, fields of closed, names,
// ids and times stay.
func poison(v any, key string, keep bool, turn *int) any {
	switch v := v.(type) {
	case map[string]any:
		made := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			to := k
			if slices.Contains(freeKeys, key) && (!keep || key != "data") {
				*turn++
				to = hostile[*turn%len(hostile)]
			}
			made[to] = poison(v[k], k, keep, turn)
		}
		return made
	case []any:
		made := make([]any, len(v))
		for i := range v {
			made[i] = poison(v[i], key, keep, turn)
		}
		return made
	case string:
		named := slices.Contains([]string{"name", "id", "node", "job", "group", "instance", "drain", "nodes"}, key)
		if keep && (named || strings.HasSuffix(key, "_at") || strings.HasSuffix(key, "_id") || slices.Contains(closed, key)) {
			return v
		}
		*turn++
		return hostile[*turn%len(hostile)]
	}
	return v
}

// innocent is an expression that lists what a page has that no text may bring: elements, handlers, addresses.
const innocent = `[...document.querySelectorAll('*')].flatMap(e => [
	/^(img|iframe|object|embed|base|form)$/i.test(e.tagName) && !e.matches('main form') ? e.outerHTML.slice(0, 200) : '',
	e.tagName === 'SCRIPT' && !e.src.startsWith(location.origin + '/ui/') ? 'script' : '',
	[...e.attributes].some(a => a.name.startsWith('on')) ? 'a handler: ' + e.outerHTML.slice(0, 200) : '',
	e.hasAttribute('href') && e.tagName !== 'LINK' && !e.getAttribute('href').startsWith('#')
		? 'leads to ' + e.getAttribute('href') : '',
]).concat(window.hacked === undefined ? '' : 'a script ran',
	document.querySelector('nav') && document.querySelector('main h1') &&
	!document.body.innerText.includes('be shown') ? '' : 'the page broke')
	.filter(Boolean).slice(0, 5)`

// unharmed reports what a text has done to the page.
func (v *tab) unharmed(name string) {
	v.t.Helper()
	var found []string
	v.do(v.Eval(v.t.Context(), innocent, &found))
	for _, one := range found {
		v.t.Errorf("%s: %s", name, one)
	}
}

// Texts of people, of programs and of other machines stay texts, whatever stands in them: in each string of each
// answer. No script runs, no element is made, nothing is asked of another site, no policy is violated, and the layout
// holds.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	browser := startBrowser(t)
	for keep, begins := range map[bool][]int{true: {0, 8}, false: {4}} {
		for _, begin := range begins {
			t.Run(fmt.Sprintf("keep %v from %d", keep, begin), func(t *testing.T) {
				w, turn := newWorld(14, 16).breakSome(), begin
				c := w.serve(t)
				answers := w.answers()
				for _, path := range slices.Sorted(maps.Keys(answers)) {
					if !strings.HasPrefix(path, "/v1/auth/") {
						answers[path] = poison(answers[path], "", keep, &turn)
					}
				}
				c.set(answers)
				c.dry = poison(c.dry, "", keep, &turn)
				v := openWorld(t, browser, c)
				for _, s := range screens {
					v.goTo(s.hash)
					if s.name == "drain-new" {
						v.until(button("Show the forecast"))
						v.run(button("Show the forecast") + ".click()")
						v.until("[...document.querySelectorAll('h2')].some(h => h.innerText === 'Forecast')")
					}
					v.unharmed(s.name)
					for _, width := range []int{360, 1280} {
						v.do(v.Look(t.Context(), width, 800, false))
						v.fits(fmt.Sprint(s.name, " ", width))
					}
				}
				v.stayed()
			})
		}
	}
}

// stayed reports what went wrong in the page, and requests that left it.
func (v *tab) stayed() {
	v.t.Helper()
	if troubles := v.Troubles("Failed to load resource"); len(troubles) > 0 {
		v.t.Errorf("what went wrong:\n%s", strings.Join(slices.Compact(troubles), "\n"))
	}
	for _, address := range v.Requests() {
		if !strings.HasPrefix(address, v.served.Address()+"/") &&
			!strings.HasPrefix(address, "file://") && address != "about:blank" {
			v.t.Errorf("the page asked for %s", address)
		}
	}
}

// Names lead to their screens, whatever stands in them, and a command with a name has it as one word of a shell.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(len(hostile), 12)
	for i, name := range hostile {
		w.nodes[i].Name = strings.TrimSpace(name) + fmt.Sprint("-", i)
	}
	for i := range w.instances {
		w.instances[i].Node = w.nodes[i].Name
	}
	w.jobs, w.drains = w.jobs[:1], nil
	w.jobs[0].Name = model.JobName(hostile[8])
	w.instances[0].ID = model.InstanceID(hostile[8])
	w.drains = []api.Drain{{ID: model.DrainID(hostile[8]), Phase: "draining", CreatedAt: w.now,
		Rejected: []model.DrainRefusal{}, Nodes: []api.DrainNode{{Node: hostile[8],
			Phase: "draining", Remaining: []api.DrainRemaining{}, Blockers: []api.DrainBlocker{}}}}}
	c := w.serve(t)
	v := openWorld(t, startBrowser(t), c)
	for i, n := range w.nodes {
		v.goTo("#/nodes/" + strings.ReplaceAll(url.QueryEscape(n.Name), "+", "%20"))
		v.until("document.querySelector('main h1').textContent.includes(" + jsonOf(n.Name) + ")")
		v.until("document.body.innerText.includes('By command')")
		v.unharmed(n.Name)
		v.until("document.querySelector('main section:last-of-type code').textContent === " +
			jsonOf("outspan node status "+quoted(n.Name)))
		if i%4 != 0 {
			continue
		}
		v.run("[...document.querySelectorAll('.actions a')].find(a => a.innerText === 'Drain …').click()")
		v.until("document.body.innerText.includes('Show the forecast')")
		v.until("document.querySelector('main h1').textContent.includes(" + jsonOf(n.Name) + ")")
	}
	name := strings.ReplaceAll(url.QueryEscape(hostile[8]), "+", "%20")
	for _, hash := range []string{"#/jobs/", "#/instances/", "#/drains/"} {
		v.goTo(hash + name)
		v.until("document.body.innerText.includes('By command')")
		v.until("[...document.querySelectorAll('code')].some(c => c.textContent.includes(" +
			jsonOf(quoted(hostile[8])) + "))")
		v.unharmed(hash)
	}
	v.goTo("#/fleet")
	v.until("document.querySelectorAll('.grid tbody tr').length === " + fmt.Sprint(len(w.nodes)))
	v.run("[...document.querySelectorAll('.grid th a')].find(a => a.innerText.startsWith('a/b%2F..')).click()")
	v.until("document.querySelector('main h1').textContent.includes('a/b%2F..?c=d#e&f-8')")
	v.stayed()
}

// quoted is a text as one word of a shell.
func quoted(text string) string {
	if regexp.MustCompile(`^[\w./:@%+=-]+$`).MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
