package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// talker is a program that prints the file "say" once it is there, and ends with code 3
// once the file "crash" is there.
const talker = `trap 'exit 0' TERM
echo begun as attempt $OUTSPAN_ATTEMPT
printf '\033[31mred\033[0m <img src=x onerror="window.hacked=1">\n'
while :; do
  if [ -e %[1]s/crash ] && mv %[1]s/crash %[1]s/crashed; then echo crashing >&2; exit 3; fi
  if [ -e %[1]s/say ] && mv %[1]s/say %[1]s/said; then cat %[1]s/said; fi
  sleep 0.2
done
`

// A person edits a job in the page: sees the mistakes of the file, plans it, runs exactly that, is refused when the job
// has changed since, reverts it, follows what it prints, and reads what became of an instance that crashed.
func TestPageJob(t *testing.T) {
	long(t)
	needChromium(t)
	t.Parallel()
	c := startCluster(t, options{servers: 1, agents: 2})
	// Programs of other users write there.
	dir := c.path("talk")
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777), os.Chmod(c.dir, 0o755)); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
	script := dir + "/talk.sh"
	put(t, script, fmt.Sprintf(talker, dir))
	file := c.path("talk.hcl")
	put(t, file, fmt.Sprintf("job \"talk\" {\n  group \"g\" {\n    count = 1\n    exec {\n      command = \"/bin/sh\"\n"+
		"      args    = [%q]\n    }\n    restart {\n      delay = \"1s\"\n    }\n  }\n}\n", script))
	c.must(t, "job", "run", file)
	c.must(t, "auth", "grant", "admin", "cert:me")
	p := c.openPage(t)
	p.shows("1 of 1 instance ready")
	testPageEdit(t, c, p)
	testPageRevert(t, c, p)
	testPageLogs(t, c, p, dir)
	testPageStory(t, c, p, dir)
	p.goTo("#/events", "instance restarted")
	p.until("document.querySelectorAll('.rates i').length > 0")
	p.shoot("events-rates")
	p.until("window.hacked === undefined")
	// Chromium notes the answers that were refused.
	if troubles := p.Troubles("Failed to load resource"); len(troubles) > 0 {
		t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
	}
}

// put writes a file that every user may read.
func put(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, 0o666)); err != nil { //nolint:gosec // see above
		t.Fatal(err)
	}
}

// write puts a text into the field for the job file.
func (p *webPage) write(change string) {
	p.t.Helper()
	p.until("document.querySelector('textarea')?.value.includes('job \"talk\"')")
	p.run(`(() => { const a = document.querySelector('textarea'); a.value = ((text) => ` + change +
		`)(a.value); a.dispatchEvent(new Event('input', { bubbles: true })) })()`)
}

func (p *webPage) version(c *cluster) uint64 {
	p.t.Helper()
	var j struct {
		Version uint64 `json:"version"`
	}
	c.mustJSON(p.t, &j, "job", "status", "talk")
	return j.Version
}

func testPageEdit(t *testing.T, c *cluster, p *webPage) {
	p.goTo("#/jobs/talk", "Versions")
	p.click("Edit")
	p.write(`text.replace('count = 1', 'cuont = 1')`)
	p.click("Plan")
	p.shows("cuont")
	p.click("line 3")
	p.shoot("edit-mistake")
	p.write(`text.replace('cuont = 1', 'count = 2').replace('delay = "1s"', 'delay = "2s"')`)
	p.click("Plan")
	p.shows("This would be version 2")
	p.until(`[...document.querySelectorAll('.diff .change')].some(e => /groups\.g\.count\s*1\s*→\s*2/.test(e.innerText))`)
	p.until(`[...document.querySelectorAll('.diff .change')].some(e => /groups\.g\.restart\.delay\s*1s\s*→\s*2s/.test(e.innerText))`)
	p.until("document.querySelectorAll('.diff li').length === 2")
	p.shoot("edit-plan")

	c.must(t, "job", "scale", "talk", "3", "--detach") // so that the plan is stale
	p.click("Run this plan")
	p.shows("Nothing was run: the job has changed since it was planned.")
	p.shoot("edit-stale")
	before := p.version(c)
	p.click("Plan")
	p.click("Run this plan")
	p.shows("Rollout of version")
	p.shows("2 of 2")
	if v := p.version(c); v != before+1 {
		t.Errorf("the job is at version %d, want %d", v, before+1)
	}
	p.until(`[...document.querySelectorAll('.versions li')].some(e => /current[^]*g\.(count|restart)[^]*cert:me/.test(e.innerText))`)
	p.shoot("job-run")
}

func testPageRevert(t *testing.T, c *cluster, p *webPage) {
	before := p.version(c)
	p.until("document.querySelectorAll('.versions button').length >= 2")
	p.run("[...document.querySelectorAll('.versions button')].find(b => b.innerText.trim().startsWith('1')).click()")
	p.click("Revert to version 1 …")
	p.shows("What it changes")
	p.until(`[...document.querySelectorAll('.diff .change')].some(e => /restart\.delay\s*2s\s*→\s*1s/.test(e.innerText))`)
	p.until("document.querySelectorAll('.diff li').length === 1") // the count stays
	p.shoot("revert")
	p.click("Revert to version 1")
	p.until(`/current[^]*revert to version 1/.test(document.querySelector('.versions li')?.innerText)`)
	if v := p.version(c); v != before+1 {
		t.Errorf("the job is at version %d, want %d", v, before+1)
	}
	c.must(t, "job", "scale", "talk", "1")
}

// A line that a program prints while somebody looks appears, of a job and of an instance. Escape sequences and HTML
// do nothing.
func testPageLogs(t *testing.T, c *cluster, p *webPage, dir string) {
	p.goTo("#/jobs/talk", "Logs")
	p.click("Follow the logs")
	p.shows("begun as attempt")
	p.shows(`red <img src=x onerror="window.hacked=1">`)
	p.until("/^live;/m.test(document.body.innerText)")
	// Whoever is there says it. Those that the revert stops must have gone.
	p.until("document.querySelectorAll('main tbody a.mono').length === 1")
	put(t, dir+"/say", "first words\n")
	p.until(`[...document.querySelectorAll('.lines div')].some(e => /^\d\d:\d\d:\d\d g\[\d\] \S+ first words$/.test(e.textContent))`)
	p.shoot("logs-job")
	p.run("document.querySelector('main tbody a.mono').click()")
	p.click("Follow the logs")
	p.shows("first words")
	put(t, dir+"/say", "second words\n")
	p.shows("second words")
	p.until("[...document.querySelectorAll('.lines div')].filter(e => e.textContent.includes('first words')).length === 1")
	p.shoot("logs-instance")
}

// An instance whose program crashed says so: in its life, with the exit code, and in what it printed.
func testPageStory(t *testing.T, c *cluster, p *webPage, dir string) {
	p.until(`/placed on n\d[^]*ready/.test(document.querySelector('.life')?.innerText)`)
	p.until("/memory\\s+[\\d.]+ \\w+ of \\d+ MiB/.test(document.body.innerText)")
	put(t, dir+"/crash", "")
	p.until(`/its program was started again[^]*3/.test(document.querySelector('.life')?.innerText)`)
	p.shows("crashing")
	p.shoot("instance-crashed")
}
