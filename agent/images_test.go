package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// fixedImages is a container runtime whose answers the test sets.
type fixedImages struct {
	mu        sync.Mutex
	digest    string
	err       error
	runtime   model.ContainerRuntime
	platforms []string
	pull      func(ctx context.Context, image string, progress func(int64)) error
	defaults  image.Defaults
	layers    map[string]bool
	held      []image.Held // image.Held.Parts has one part
	diskBytes int64        // size of the disk
	marked    []string     // digests that were found in use
	unwanted  []string     // digests for which Abandon was told that nothing wants them
	stuck     string       // the digest of an image that can't be deleted
}

func (f *fixedImages) Resolve(_ context.Context, name string) (digest string, platforms []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "reg/web:1" {
		return "", nil, errors.New("another image: " + name)
	}
	return f.digest, f.platforms, f.err
}

func (f *fixedImages) Runtime(context.Context) model.ContainerRuntime {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runtime
}

// Pull implements Images. It returns the result of f.pull, if that is set.
func (f *fixedImages) Pull(ctx context.Context, name string, progress func(int64)) error {
	f.mu.Lock()
	pull := f.pull
	f.mu.Unlock()
	if pull == nil {
		return nil
	}
	return pull(ctx, name, progress)
}

// Defaults implements Images.
func (f *fixedImages) Defaults(context.Context, string) (image.Defaults, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.defaults, f.err
}

// Mounts implements Images.
func (f *fixedImages) Mounts(_ context.Context, id, _ string) ([]image.Mount, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.layers[id] = true
	return []image.Mount{{Type: "bind", Source: "/layers/" + id}}, nil
}

// Layers implements Images.
func (f *fixedImages) Layers(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sortedKeys(f.layers), f.err
}

// Release implements Images.
func (f *fixedImages) Release(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.layers, id)
	return f.err
}

// Survey implements Images.
func (f *fixedImages) Survey(context.Context) (image.Survey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return image.Survey{Images: slices.Clone(f.held)}, f.err
}

// List implements Images.
func (f *fixedImages) List(context.Context) (digests []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		digests = append(digests, h.Digest)
	}
	return digests, f.err
}

// Disk implements Images. The disk has nothing but the images.
func (f *fixedImages) Disk(context.Context) (image.Disk, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := image.Disk{Path: "/images", Total: f.diskBytes}
	for _, h := range f.held {
		d.Used += h.Bytes()
	}
	return d, f.err
}

// Remove implements Images.
func (f *fixedImages) Remove(_ context.Context, digest string, leave func() bool) (bool, error) {
	if !leave() {
		return false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if digest == f.stuck {
		return false, model.Refuse(model.CodeRuntimeDown, "it can't be deleted")
	}
	f.held = slices.DeleteFunc(f.held, func(h image.Held) bool { return h.Digest == digest })
	return true, f.err
}

// MarkUsed implements Images.
func (f *fixedImages) MarkUsed(_ context.Context, used func(string) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.marked = nil
	for _, h := range f.held {
		if used(h.Digest) {
			f.marked = append(f.marked, h.Digest)
		}
	}
	return f.err
}

// Abandon implements Images.
func (f *fixedImages) Abandon(_ context.Context, wanted func(string) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unwanted = nil
	for n := 1; n <= 3; n++ {
		if d := digestNumber(n); !wanted(d) {
			f.unwanted = append(f.unwanted, d)
		}
	}
	return f.err
}

// Close implements Images.
func (f *fixedImages) Close() error { return nil }

func (f *fixedImages) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// The servers ask an agent for the digest of an image, and get the registry's words if there is none. An agent without
// a container runtime says so, and nobody but a server may ask.
func TestServeImage(t *testing.T) {
	f := &fixedImages{digest: "sha256:" + strings.Repeat("a", 64),
		platforms: []string{"linux/amd64", "unknown/unknown/x y"}}
	b := newBench(t, func(c *Config) { c.Images = f })
	url := front(t, b, model.SubjectServer).URL + transport.PathAgentImage
	code, text, _ := fetch(t, url+"?name=reg/web:1")
	var got transport.ResolvedImage
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != http.StatusOK || got.Digest != f.digest ||
		len(got.Platforms) != 1 || got.Platforms[0] != "linux/amd64" {
		t.Errorf("%d %s %v", code, text, err)
	}
	refused := func(what string, want model.Code, says string) {
		t.Helper()
		_, text, _ := fetch(t, url+"?name="+what)
		var p api.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Code != want || !strings.Contains(p.Message, says) {
			t.Errorf("%s: %s, want %s: %s", what, text, want, says)
		}
	}
	refused("", model.CodeInvalid, "no image")
	refused("http://reg/web", model.CodeInvalid, "is a URL")
	f.set(func() { f.err = errors.New("reg: manifest unknown" + strings.Repeat("!", 2*maxRegistryWords)) })
	refused("reg/web:1", model.CodeImageUnresolved, "reg: manifest unknown")
	f.set(func() { f.err, f.digest = nil, "sha256:short" })
	refused("reg/web:1", model.CodeImageUnresolved, "named no digest")
	if code, _, _ := fetch(t, front(t, b, model.SubjectAgent).URL+transport.PathAgentImage+"?name=reg/web:1"); code !=
		http.StatusForbidden {
		t.Errorf("another agent may ask: %d", code)
	}
}

// An agent reports its container runtime before the node is eligible, and each change of it. It reports nothing of a
// runtime that it does not have, and starts no container then.
func TestRuntimeIsReported(t *testing.T) {
	t.Run("with", func(t *testing.T) {
		f := &fixedImages{runtime: model.ContainerRuntime{Version: "2.1"}}
		b := newBench(t, func(c *Config) { c.Images = f })
		if x := b.row().Self.Runtime; x == nil || x.Version != "2.1" || x.Down != "" {
			t.Fatalf("the node is eligible with the runtime %+v", x)
		}
		f.set(func() { f.runtime.Down = "no socket" })
		eventually(t, "the runtime to be down", func() bool { return b.row().Self.Runtime.Down == "no socket" })
		if n := b.row(); n.Self.Runtime.DownSince == 0 || n.Troubled() || n.State() != model.NodeActive {
			t.Errorf("the node is %s, its runtime %+v", n.State(), n.Self.Runtime)
		}
		f.set(func() { f.runtime.Down = "" })
		eventually(t, "the runtime to be up", func() bool { return b.row().Self.Runtime.Down == "" })
	})
	t.Run("without", func(t *testing.T) {
		b := newBench(t)
		if x := b.row().Self.Runtime; x != nil {
			t.Errorf("the node has the runtime %+v", x)
		}
		_, err := b.agent.shared.launch(t.Context(), transport.Assignment{
			Spec: &model.GroupSpec{Container: &model.ContainerSpec{Image: "web"}}}, 0)
		if !errors.Is(err, &model.Error{Code: model.CodeNoRuntime}) {
			t.Errorf("a container's start: %v", err)
		}
	})
}

// The answer to a pruning can be lost. The same request again names what it deleted, another one what is left. What an
// error leaves undone does not hide what is deleted.
func TestPruneTellsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		images := webImage()
		hold := func(n int) {
			images.held = append(images.held, image.Held{Digest: digestNumber(n), Parts: map[string]int64{digestNumber(n): 7}})
		}
		hold(1)
		hold(2)
		b.cfg.Images = images
		b.start()
		b.pass(time.Second)
		ask := func(query string) string {
			t.Helper()
			w := httptest.NewRecorder()
			gone, cancel := context.WithCancel(t.Context())
			cancel() // the caller does not wait for the end
			b.agent.servePrune(w, httptest.NewRequestWithContext(gone, http.MethodPost, "/?"+query, nil))
			var answer transport.PrunedImages
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
				return w.Body.String()
			}
			text := fmt.Sprint(answer.Bytes, answer.More)
			for _, h := range answer.Images {
				text += " " + h.Digest[len(h.Digest)-1:]
			}
			return text
		}
		both := "14 false 1 2"
		for _, c := range []struct{ query, want string }{
			{"dry_run=true&request_id=one", both}, {"request_id=one", both}, {"request_id=one", both},
			{"request_id=two", "0 false"}, {"", "0 false"},
		} {
			if got := ask(c.query); got != c.want {
				t.Errorf("%s: %s, want %s", c.query, got, c.want)
			}
		}
		images.set(func() {
			hold(1)
			hold(2)
			images.stuck = digestNumber(2)
		})
		if got, want := ask("request_id=three"), "7 true 1"; got != want {
			t.Errorf("an error in the middle: %s, want %s", got, want)
		}
		if got := ask("request_id=four"); !strings.Contains(got, "can't be deleted") {
			t.Errorf("an error at the beginning: %s", got)
		}
	})
}
