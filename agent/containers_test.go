package agent

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/agent/driver/oci"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const webDigest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func webImage() *fixedImages {
	return &fixedImages{
		runtime: model.ContainerRuntime{Version: "2.1"}, layers: map[string]bool{}, defaults: image.Defaults{
			Entrypoint: []string{"/web"}, Cmd: []string{"serve"}, Env: []string{"PATH=/bin", "COLOR=blue"}, User: "app",
			Dir: "/www", StopSignal: "SIGQUIT",
		},
	}
}

func webGroup() model.GroupSpec {
	return model.GroupSpec{Container: &model.ContainerSpec{Image: "reg/web:1@" + webDigest}}
}

// inRuntime is inBubble with a container runtime.
func inRuntime(t *testing.T, f func(t *testing.T, b *bubble, images *fixedImages)) {
	inBubble(t, func(t *testing.T, b *bubble) {
		images := webImage()
		b.cfg.Images = images
		b.start()
		f(t, b, images)
	})
}

// A container starts once its image was pulled. Meanwhile its reason says how much there is.
func TestPullBeforeStart(t *testing.T) {
	inRuntime(t, func(t *testing.T, b *bubble, images *fixedImages) {
		have := time.Now().Add(17 * time.Second)
		images.pull = func(_ context.Context, name string, progress func(int64)) error {
			if name != "reg/web:1@"+webDigest {
				t.Errorf("pulled %s", name)
			}
			progress(3 << 20)
			time.Sleep(time.Until(have))
			return nil
		}
		id := b.run("web", webGroup())
		b.pass(6 * time.Second)
		b.want(id, model.ObservedBooting, "pulling reg/web:1: 3MiB so far")
		if b.mem.starts() != 0 {
			t.Error("started without its image")
		}
		b.pass(12 * time.Second)
		b.want(id, model.ObservedReady, "")
		b.stop(id, nil)
		b.pass(2 * time.Second)
		b.want(id, model.ObservedStopped, "")
		b.pass(2 * runtimeCheckEvery)
		if left, _ := images.Layers(t.Context()); len(left) > 0 {
			t.Errorf("the layers %v are left", left)
		}
	})
}

// A pull that nobody wants any more ends.
func TestPullIsGivenUp(t *testing.T) {
	inRuntime(t, func(t *testing.T, b *bubble, images *fixedImages) {
		ended := make(chan struct{})
		images.pull = func(ctx context.Context, _ string, _ func(int64)) error {
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		}
		id := b.run("web", webGroup())
		b.pass(time.Minute)
		b.stop(id, nil)
		b.pass(time.Second)
		b.want(id, model.ObservedStopped, "pulling reg/web:1: 0B so far")
		select {
		case <-ended:
		default:
			t.Error("the pull goes on")
		}
	})
}

// A pull that fails, or takes longer than its limit, is a failed start. The words of the registry are the reason.
func TestPullFails(t *testing.T) {
	inRuntime(t, func(t *testing.T, b *bubble, images *fixedImages) {
		late := 0
		images.pull = func(ctx context.Context, _ string, _ func(int64)) error {
			if late++; late == 1 {
				<-ctx.Done()
			}
			return model.Refuse(image.CodePullFailed, "pull reg/web: manifest unknown")
		}
		g := webGroup()
		g.Restart = model.RestartSpec{Attempts: 1, Interval: model.Hour, Delay: 5 * model.Second}
		id := b.run("web", g)
		b.pass(15*time.Minute + time.Second)
		b.want(id, model.ObservedBooting, "image_pull_failed: pull reg/web: manifest unknown")
		b.pass(5 * time.Second)
		if i := b.want(id, model.ObservedFailed, "image_pull_failed: pull reg/web: manifest unknown"); late != 2 ||
			i.Status.Restarts != 1 {
			t.Errorf("%d pulls, %d restarts", late, i.Status.Restarts)
		}
	})
}

// While the runtime does not answer, a start waits, and is not counted as failed. What runs goes on.
func TestStartWaitsForTheRuntime(t *testing.T) {
	inRuntime(t, func(t *testing.T, b *bubble, images *fixedImages) {
		runs := b.run("web", webGroup())
		b.pass(time.Second)
		b.want(runs, model.ObservedReady, "")
		down := model.Refuse(model.CodeRuntimeDown, "no socket")
		images.set(func() { images.err = down })
		waits := b.run("other", webGroup())
		b.pass(time.Hour)
		b.want(waits, model.ObservedBooting, "runtime_down: no socket")
		images.set(func() {
			images.err = nil
			images.pull = func(context.Context, string, func(int64)) error { return down }
		})
		b.pass(time.Hour)
		b.want(waits, model.ObservedBooting, "runtime_down: no socket")
		images.set(func() { images.pull = nil })
		b.pass(5 * time.Second)
		if i := b.want(waits, model.ObservedReady, ""); i.Status.Restarts != 0 {
			t.Errorf("%d restarts", i.Status.Restarts)
		}
		b.want(runs, model.ObservedReady, "")
	})
}

// The driver gets what the image and the job say. The job wins.
func TestContainerSpec(t *testing.T) {
	inRuntime(t, func(t *testing.T, b *bubble, images *fixedImages) {
		plain := b.run("plain", webGroup())
		g := webGroup()
		c := g.Container
		c.Command, c.Args, c.User, c.ReadOnly, c.Tmpfs = "run", []string{"${slot}"}, "7:8", true, []string{"/tmp"}
		c.Mounts = []model.MountSpec{{Path: "/etc", Source: "/srv/etc", ReadOnly: true}}
		c.Rlimits, c.CapAdd, c.ShmBytes = map[string]uint64{"nofile": 64}, []string{"net_raw"}, 1<<20
		g.Env, g.Stop.Signal = map[string]string{"COLOR": "red"}, "SIGINT"
		g.Volumes = []model.VolumeSpec{{Name: "data", Kind: model.VolumeLocal, Path: "/data"}}
		full := b.run("full", g)
		b.pass(time.Second)
		for _, s := range b.mem.started {
			argv, job := strings.Join(append([]string{s.Command}, s.Args...), " "), s.Env["OUTSPAN_JOB"]
			k := s.Container
			if s.Env["PATH"] != "/bin" || s.Env["OUTSPAN_PEERS"] != "/run/outspan/peers/g" || s.Dir != "/www" ||
				k.Rootfs[0].Source != "/layers/"+string(s.ID) || k.Mounts[len(k.Mounts)-1].Target != "/run/outspan/peers" {
				t.Errorf("%s: %+v", job, s)
			}
			switch job {
			case "plain":
				if string(s.ID) != string(plain) || argv != "/web serve" || s.User != "app" || s.Env["COLOR"] != "blue" ||
					s.Stop.Signal != syscall.SIGQUIT || k.ReadOnly || k.Hosts != "/etc/hosts" || k.ShmBytes != 64<<20 {
					t.Errorf("plain: %+v, %+v", s, k)
				}
			case "full":
				if string(s.ID) != string(full) || argv != "/web run 0" || s.User != "7:8" || s.Env["COLOR"] != "red" ||
					s.Stop.Signal != syscall.SIGINT || !k.ReadOnly || k.Hosts != "" || k.ShmBytes != 1<<20 ||
					s.Limits.Rlimits["nofile"].Hard != 64 || !slices.Equal(k.CapAdd, []string{"NET_RAW"}) ||
					s.Binds[0].Target != "/data" || s.Env["OUTSPAN_VOLUME_DATA"] != "/data" {
					t.Errorf("full: %+v, %+v", s, k)
				}
				want := []oci.Mount{{Source: "/srv/etc", Target: "/etc", Options: []string{"ro"}}}
				if diff := cmp.Diff(want, k.Mounts[:1]); diff != "" || k.Tmpfs[0].Target != "/tmp" {
					t.Errorf("mounts: %s", diff)
				}
			}
		}
		if b.mem.starts() != 2 {
			t.Errorf("%d starts", b.mem.starts())
		}
	})
}

// What the image says of its stop signal is a name or a number.
func TestImageSignal(t *testing.T) {
	w := &shared{log: testLog(t)}
	for text, want := range map[string]syscall.Signal{"": syscall.SIGTERM, "SIGQUIT": syscall.SIGQUIT,
		"int": syscall.SIGINT, "3": syscall.SIGQUIT, "SIGRTMIN+3": syscall.SIGTERM, "99": syscall.SIGTERM} {
		if got := w.imageSignal(transport.Assignment{}, text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// A container is not stopped for a restart in place while the runtime could not start it again, whether a check or a
// person asks for the restart. It is once the runtime answers.
func TestNoRestartWithoutTheRuntime(t *testing.T) {
	for name, ask := range map[string]func(*bubble, model.InstanceID, *atomic.Bool){
		"check":  func(_ *bubble, _ model.InstanceID, ill *atomic.Bool) { ill.Store(true) },
		"person": func(b *bubble, id model.InstanceID, _ *atomic.Bool) { b.apply(&fsm.InstanceRestart{ID: id}) },
	} {
		t.Run(name, func(t *testing.T) {
			inRuntime(t, func(t *testing.T, b *bubble, images *fixedImages) {
				g, ill := illCheck(b, 30*model.Second)
				g.Container, g.Exec = webGroup().Container, model.ExecSpec{}
				id := b.run("web", g)
				b.pass(5 * time.Second)
				b.want(id, model.ObservedReady, "")
				images.set(func() {
					images.runtime.Down, images.err = "no socket", model.Refuse(model.CodeRuntimeDown, "no socket")
				})
				ask(b, id, ill)
				b.pass(10 * time.Minute)
				if task := b.mem.task(id); b.mem.starts() != 1 || task == nil || !task.Alive() {
					t.Errorf("%d starts, and %+v", b.mem.starts(), b.instance(id).Status)
				}
				images.set(func() { images.runtime.Down, images.err = "", nil })
				b.pass(3 * time.Second)
				ill.Store(false)
				b.pass(10 * time.Second)
				if i := b.want(id, model.ObservedReady, ""); b.mem.starts() != 2 || i.Status.Restarts != 1 {
					t.Errorf("%d starts, %d restarts", b.mem.starts(), i.Status.Restarts)
				}
			})
		})
	}
}

// While containerd is down, a container without its network runs on, but leaves its services.
func TestLostNetworkWithoutTheRuntime(t *testing.T) {
	inBridge(t, func(t *testing.T, b *bubble, n *memNetworks) {
		images := b.cfg.Images.(*fixedImages) //nolint:forcetypeassert // inBridge made it
		id := b.run("web", bridgedGroup())
		b.pass(time.Second)
		b.want(id, model.ObservedReady, "")
		images.set(func() { images.runtime.Down = "no socket" })
		n.set(func() { n.cut = map[string]string{string(id): "its interface veth1 is gone"} })
		b.pass(10 * time.Minute)
		b.want(id, model.ObservedUnready, "network_lost: its interface veth1 is gone")
		if task := b.mem.task(id); b.mem.starts() != 1 || task == nil || !task.Alive() {
			t.Errorf("%d starts", b.mem.starts())
		}
		images.set(func() { images.runtime.Down = "" })
		b.pass(time.Minute)
		if b.want(id, model.ObservedReady, ""); b.mem.starts() != 2 {
			t.Errorf("%d starts", b.mem.starts())
		}
	})
}
