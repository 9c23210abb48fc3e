package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// The first machine loses its data and keeps outspan.hcl, with bootstrap_expect = 1. It joins again, and becomes a
// member of its old cluster. It does not begin a second one.
func TestEmptiedFirstMachineJoinsItsCluster(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	o := w.join("s2", pki.RoleServer, 1)
	o.name, o.advertise, o.noAgent = "s2", w.network+".2", true
	w.must(o)
	w.run("s2")
	w.voter("s2")
	id := w.clusterID()
	first := w.api
	defer first.Close()
	var err error
	if w.api, err = client.New(client.Config{Addresses: []string{"unix://" + w.data("s2") + "/api.sock"}}); err != nil {
		t.Fatal(err)
	}
	w.eventually("s1 is removed", func(ctx context.Context) error {
		_, err := w.api.Members.Remove(ctx, "s1", client.RemoveOptions{})
		return err
	})
	w.eventually("s1 is revoked", func(ctx context.Context) error {
		_, err := w.api.Trust.RevokeServer(ctx, "s1", api.RevokeBody{}, client.RevokeServerOptions{})
		return err
	})
	w.halt("s1")
	if err := os.RemoveAll(w.data("s1")); err != nil {
		t.Fatal(err)
	}
	again := w.join("s1", pki.RoleServer, 1)
	again.addresses = []string{w.network + ".2:7640"}
	w.must(again)
	text := fileText(t, filepath.Join(w.conf("s1"), configFile))
	if strings.Contains(text, "bootstrap_expect") || !strings.Contains(text, "retry_join = [\""+w.network+".2:7642\"]") {
		t.Errorf("its configuration is\n%s", text)
	}
	if !cluster.HasJoined(w.data("s1")) {
		t.Error("its data directory does not say that it joined")
	}
	w.run("s1")
	w.voter("s1")
	if w.api = first; w.clusterID() != id {
		t.Errorf("s1 is in the cluster %s, want %s", w.clusterID(), id)
	}
}

// A first machine that lost its log and keeps its certificates begins no second cluster: up refuses it, and so does the
// server itself.
func TestFirstMachineWithoutItsLog(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	w.clusterID()
	w.eventually("the file with the CA's key is gone", func(context.Context) error {
		if exists(w.files("s1").CAKeyFile()) {
			return errors.New("it is there")
		}
		return nil
	})
	w.halt("s1")
	all, err := os.ReadDir(w.data("s1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Name() != "tls" && one.Name() != "keyring" {
			if err := os.RemoveAll(filepath.Join(w.data("s1"), one.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := &upOptions{setupFlags: setupFlags{command: "up", configDir: w.conf("s1"), dataDir: w.data("s1"), noStart: true}}
	err = runUp(t.Context(), consoleAt(io.Discard, 0), SetupCalls{JoinSteps: noSteps}, o)
	wantRefusal(t, err, model.CodeConflict, "it begins no second one", "join again with a token")
	w.run("s1")
	w.eventually("the server is up", func(context.Context) error {
		if !cluster.Started(w.data("s1")) {
			return errors.New("it has not started")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // a new cluster begins within less
	defer cancel()
	for ctx.Err() == nil {
		if _, err := w.api.Members.List(ctx, client.ListOptions{}); err == nil {
			t.Fatal("it began a second cluster")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// up makes no new CA in a directory with which a server has joined another cluster.
func TestUpInADirectoryThatJoined(t *testing.T) {
	o := upFor(t, systemd{})
	if err := cluster.NoteJoined(o.dataDir, cluster.Joined{Cluster: "c1"}); err != nil {
		t.Fatal(err)
	}
	err := runUp(t.Context(), consoleAt(io.Discard, 0), SetupCalls{JoinSteps: noSteps}, o)
	wantRefusal(t, err, model.CodeConflict, "a server has joined a cluster with "+o.dataDir, "outspan join --server")
}

// voter waits until a server has a vote.
func (w *town) voter(name string) {
	w.t.Helper()
	w.eventually(name+" votes", func(ctx context.Context) error {
		members, err := w.api.Members.List(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range members.Items {
			if one.Name == name && one.Voter {
				return nil
			}
		}
		return fmt.Errorf("%s has no vote", name)
	})
}

// clusterID waits until the server has a state, and returns the id of its cluster.
func (w *town) clusterID() (id string) {
	w.t.Helper()
	w.eventually("the cluster has an id", func(ctx context.Context) error {
		got, err := w.api.Cluster.Status(ctx, client.ReadOptions{})
		if err == nil {
			if id = got.Value.ClusterID; id == "" {
				err = errors.New("it has none")
			}
		}
		return err
	})
	return id
}
