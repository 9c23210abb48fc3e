package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func digestNumber(n int) string { return fmt.Sprintf("sha256:%064d", n) }

func imageNumber(n int) string { return fmt.Sprintf("reg/app%d@%s", n, digestNumber(n)) }

// pulling is a puller with a registry whose answers the test sets, in fake time.
type pulling struct {
	*puller
	images *fixedImages
	mu     sync.Mutex
	told   []model.NodeImage
	tells  int
	logged lockedText
}

// lockedText is the output of a log.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func inPuller(t *testing.T, pull func(context.Context, string, func(int64)) error, f func(p *pulling)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulling{images: &fixedImages{pull: pull}}
		p.puller = newPuller(&nodeImages{Images: p.images, patience: time.Hour}, func(list []model.NodeImage) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.told, p.tells = slices.Clone(list), p.tells+1
		}, hclog.New(&hclog.LoggerOptions{Output: &p.logged}))
		ctx, cancel := context.WithCancel(t.Context())
		p.begin(ctx)
		ended := make(chan struct{})
		go func() { defer close(ended); p.run(ctx) }()
		f(p)
		cancel()
		<-ended
	})
}

// reported lists what was last reported, as "number state bytes words".
func (p *pulling) reported() string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var texts []string
	for _, k := range p.told {
		number := strings.TrimLeft(strings.TrimPrefix(k.Digest, "sha256:"), "0")
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", number, k.State, k.Bytes, k.Words)))
	}
	return strings.Join(texts, ", ")
}

// reports returns how often the agent reported so far.
func (p *pulling) reports() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tells
}

func (p *pulling) wants(t *testing.T, want string) {
	t.Helper()
	if got := p.reported(); got != want {
		t.Errorf("reported %q, want %q", got, want)
	}
}

// Images are pulled by their digest, two at a time, and progress is reported every five seconds at most.
func TestPullsOnOrder(t *testing.T) {
	inPuller(t, func(_ context.Context, name string, progress func(int64)) error {
		if !strings.Contains(name, "@sha256:") {
			t.Errorf("S21: pulls %s, by its name alone", name)
		}
		for i := range 10 {
			time.Sleep(time.Second)
			progress(int64(i + 1))
		}
		return nil
	}, func(p *pulling) {
		p.want([]string{imageNumber(1), imageNumber(2), imageNumber(3)})
		p.wants(t, "1 pulling 0, 2 pulling 0, 3 queued 0")
		time.Sleep(9500 * time.Millisecond)
		if n := p.reports(); n > 3 {
			t.Errorf("%d reports within 9.5 s", n)
		}
		time.Sleep(time.Second)
		if got := p.reported(); strings.Count(got, "pulling 0") != 1 || strings.Count(got, "present 10") != 2 {
			t.Errorf("after two pulls: %s", got)
		}
		p.want([]string{imageNumber(1), imageNumber(2), imageNumber(3)}) // the same list again changes nothing
		time.Sleep(11 * time.Second)
		if got := p.reported(); strings.Count(got, "present") != 3 {
			t.Errorf("after three: %s", got)
		}
		p.want(nil)
		if got := p.reported(); strings.Count(got, "present") != 3 {
			t.Errorf("what was pulled is still there: %s", got)
		}
	})
}

// A failure is reported with the registry's words and tried again while the image is wanted. A pull that nobody wants
// any more ends at once.
func TestPullsFailAndEnd(t *testing.T) {
	var tries, ended atomic.Int32
	var works atomic.Bool
	inPuller(t, func(ctx context.Context, name string, _ func(int64)) error {
		switch {
		case name == imageNumber(2):
			<-ctx.Done()
			ended.Add(1)
			return ctx.Err()
		case works.Load():
			return nil
		}
		tries.Add(1)
		return model.Refuse(image.CodePullFailed, "manifest unknown")
	}, func(p *pulling) {
		p.want([]string{imageNumber(1), imageNumber(2)})
		p.wants(t, "1 failed 0 manifest unknown, 2 pulling 0")
		time.Sleep(pullAgain + time.Second)
		synctest.Wait()
		if n := tries.Load(); n != 2 {
			t.Errorf("%d tries", n)
		}
		p.want([]string{imageNumber(1)})
		p.wants(t, "1 failed 0 manifest unknown")
		if ended.Load() != 1 {
			t.Error("a pull that nobody wants goes on")
		}
		works.Store(true)
		time.Sleep(pullAgain)
		p.wants(t, "1 present 0")
		for _, line := range []string{"can't be pulled for now: image=" + imageNumber(1) + ` error="manifest unknown"`,
			"an image is on this node: image=" + imageNumber(1)} {
			if got := p.logged.String(); !strings.Contains(got, line) {
				t.Errorf("the log lacks %q:\n%s", line, got)
			}
		}
	})
}

// An agent reports that it pulls on order, and pulls what a claim to its node asks for before anything is placed.
func TestAgentPullsForClaims(t *testing.T) {
	n := newPuller(nil, nil, nil)
	n.begin(t.Context())
	n.want([]string{imageNumber(1)}) // a node without a runtime does nothing
	var r reporter
	r.self.runtime = &model.ContainerRuntime{Version: "2.1"}
	r.self.images = []model.NodeImage{{Digest: digestNumber(1), State: model.ImagePresent}}
	if got := r.self.report().Runtime; !got.Pulls || len(got.Images) != 1 || got.Version != "2.1" {
		t.Errorf("reports %+v", got)
	}
}

// While the disk is fuller than the mark, an agent deletes images that nothing needs, and reports what is left. It
// keeps images that an instance runs, that are claimed, and that are being pulled.
func TestAgentDeletesImages(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		images := webImage()
		images.diskBytes = 1000
		hold := func(digest string, age time.Duration) {
			images.held = append(images.held, image.Held{Digest: digest, Used: time.Now().Add(-age),
				Parts: map[string]int64{digest: 240}})
		}
		images.pull = func(_ context.Context, name string, _ func(int64)) error {
			images.set(func() {
				if _, digest, _ := strings.Cut(name, "@"); !slices.ContainsFunc(images.held, func(h image.Held) bool {
					return h.Digest == digest
				}) {
					hold(digest, 0)
				}
			})
			return nil
		}
		b.cfg.Images, b.cfg.Containers = images, &ContainerConfig{DiskHigh: 85, DiskLow: 60}
		hold(digestNumber(1), time.Hour) // of an earlier time
		b.start()
		b.run("web", webGroup())
		var groups []model.GroupID
		for n := 2; n <= 3; n++ {
			group := b.submit(fmt.Sprint("app", n), model.GroupSpec{Container: &model.ContainerSpec{Image: imageNumber(n)}})
			b.apply(&fsm.ImageWant{Group: group, Version: 1, Node: b.node(), Cause: model.CauseScaleUp})
			groups = append(groups, group)
		}
		b.pass(time.Second) // 96 % are used now
		b.apply(&fsm.ImageDrop{Group: groups[1]})
		have := func() (digests []string) {
			list, _ := images.List(t.Context())
			return list
		}
		b.pass(time.Second)
		b.setDown(true)
		images.set(func() { images.diskBytes = 800 }) // so that one image less is not enough
		b.pass(cleanEvery)
		if got, want := have(), []string{webDigest, digestNumber(2), digestNumber(3)}; !sameSet(got, want) {
			t.Errorf("%v are left, want %v: the servers don't know that the last one may go", got, want)
		}
		images.set(func() { images.diskBytes = 820 })
		b.setDown(false)
		b.pass(cleanEvery)
		if got, want := have(), []string{webDigest, digestNumber(2)}; !sameSet(got, want) {
			t.Errorf("%v are left, want %v: the one that runs and the one that is claimed", got, want)
		}
		reported := func() (texts []string) {
			for _, k := range b.agent.shared.reports.self.images {
				texts = append(texts, k.Digest)
			}
			return texts
		}
		if got := reported(); !sameSet(got, []string{digestNumber(2), webDigest}) {
			t.Errorf("%v are reported", got)
		}
		if got := images.unwanted; !slices.Equal(got, []string{digestNumber(1), digestNumber(3)}) ||
			!slices.Equal(images.marked, []string{webDigest}) {
			t.Errorf("nothing wants %v, %v marked as used", got, images.marked)
		}

		b.apply(&fsm.ImageDrop{Group: groups[0]})
		b.pass(time.Second)
		images.set(func() { images.held = nil }) // a person deletes everything
		b.pass(cleanEvery)
		if got := reported(); len(got) != 0 {
			t.Errorf("%v are reported, and gone", got)
		}
	})
}

func sameSet(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
