package bridge

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
)

// The Keeper of an agent that restarts keeps what is adopted, and removes the rest. It waits for plugins that are
// missing.
func TestKeeper(t *testing.T) {
	first := open(t, t.TempDir(), "n1")
	connect(t, first, "a", Mapping{8001, 80})
	connect(t, first, "b", Mapping{8002, 80})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	plugins := filepath.Join(t.TempDir(), "cni")
	k := Keep(Config{Node: "n1", Dir: first.cfg.Dir, Address: first.cfg.Address, Plugins: plugins})
	t.Cleanup(func() { _ = k.Close() })
	if err := k.Adopt("a"); err != nil {
		t.Fatal(err)
	}
	if err := k.Look(); err != nil {
		t.Fatal(err)
	}
	if _, why := k.State(); why == nil || !strings.Contains(why.Error(), "no CNI plugin") {
		t.Errorf("without plugins: %v", why)
	}
	if _, err := k.Connect(t.Context(), "c", nil); codeOf(err) != model.CodeNoNetwork {
		t.Errorf("without plugins: %v", err)
	}
	if _, err := k.Tend(t.Context(), nothingFreed(t)); err != nil || ask("192.0.2.1:8001")+ask("192.0.2.1:8002") != "ab" {
		t.Errorf("without plugins something was removed: %v", err)
	}
	if err := os.Symlink(defaultPlugins(), plugins); err != nil {
		t.Fatal(err)
	}
	if err := k.Look(); err != nil {
		t.Fatal(err)
	}
	if subnet, why := k.State(); why != nil || subnet != first.Subnet().String() {
		t.Errorf("subnet %q, %v", subnet, why)
	}
	if _, err := net.Listen("tcp4", "192.0.2.1:8001"); err == nil {
		t.Error("the port of the adopted container is not held")
	}
	if !k.Ending("b") || k.Ending("a") || k.EndingOn(8002) != "b" {
		t.Errorf("the network that is not adopted is not ending: a %t, b %t", k.Ending("a"), k.Ending("b"))
	}
	freed := ""
	if made, err := k.Tend(t.Context(), func(id string) { freed += id }); err != nil || made != 0 || freed != "b" {
		t.Errorf("%d rules were made, freed %q, %v", made, freed, err)
	}
	if got := ask("192.0.2.1:8001") + ask("192.0.2.1:8002"); got != "a" || k.EndingOn(8002) != "" {
		t.Errorf("the ports answer %q", got)
	}
	if _, err := run(t.Context(), "iptables", "-t", "nat", "-F"); err != nil {
		t.Fatal(err)
	}
	if made, err := k.Tend(t.Context(), nothingFreed(t)); err != nil || made != 2 {
		t.Errorf("%d rules were made, %v", made, err)
	}
	if got := ask("192.0.2.1:8001"); got != "a" {
		t.Errorf("after the repair the port answers %q", got)
	}
	k.Disconnect("a")
	checkNothing(t, first)
}

// What could not be removed is removed later.
func TestKeeperTriesAgain(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	plugins := filepath.Join(t.TempDir(), "cni")
	if err := os.Symlink(defaultPlugins(), plugins); err != nil {
		t.Fatal(err)
	}
	k := Keep(Config{Node: "n1", Dir: n.cfg.Dir, Address: n.cfg.Address, Plugins: plugins})
	if err := k.Look(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Connect(t.Context(), "a", []Mapping{{8001, 80}}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(plugins); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if k.Disconnect("a") || !k.Ending("a") {
			t.Error("without plugins the network is gone")
		}
	}
	if _, err := k.Tend(t.Context(), nothingFreed(t)); codeOf(err) != CodeFailed {
		t.Errorf("without plugins: %v", err)
	}
	if l, err := net.Listen("tcp4", "192.0.2.1:8001"); err == nil {
		_ = l.Close()
		t.Error("the port is not held while its rules remain")
	}
	if err := os.Symlink(defaultPlugins(), plugins); err != nil {
		t.Fatal(err)
	}
	freed := ""
	if _, err := k.Tend(t.Context(), func(id string) { freed += id }); err != nil || freed != "a" || k.Ending("a") {
		t.Errorf("freed %q, %v", freed, err)
	}
	checkNothing(t, n)
}

// A removal does not wait long for the calls of other instances.
func TestDisconnectIsBounded(t *testing.T) {
	n := open(t, t.TempDir(), "n1")
	k := NewKeeper(func() (Backend, error) { return n, nil })
	if err := k.Look(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Connect(t.Context(), "a", []Mapping{{8001, 80}}); err != nil {
		t.Fatal(err)
	}
	n.turn <- struct{}{} // a call that hangs
	done := make(chan bool)
	go func() { done <- k.Disconnect("a") }()
	select {
	case gone := <-done:
		if gone {
			t.Error("the network is gone during another call")
		}
	case <-time.After(10 * removeLimit):
		t.Error("the removal waits for the other call")
	}
	n.unlock()
	freed := ""
	if _, err := k.Tend(t.Context(), func(id string) { freed += id }); err != nil || freed != "a" {
		t.Errorf("freed %q, %v", freed, err)
	}
	checkNothing(t, n)
}

func nothingFreed(t *testing.T) func(string) {
	return func(id string) { t.Errorf("freed %s", id) }
}

func TestHostName(t *testing.T) {
	long := strings.Repeat("x", 80)
	for id, want := range map[string]string{"web-http-0a": "web-http-0a", "a_b.": "a-b", long: long[:63]} {
		if got := HostName(id); got != want {
			t.Errorf("%s: %q", id, got)
		}
	}
}
