package local

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/pki"
)

// A server and agent that was off while the CA was replaced without it joins again with a token. It keeps its data, its
// keyring and its configuration, and goes on as the same server and node.
func TestServerOffForARotationJoinsAgain(t *testing.T) {
	w := newTown(t, func(o *upOptions) { o.noAgent = true })
	for name, host := range map[string]string{"s2": ".2", "s3": ".3"} {
		o := w.join(name, pki.RoleServer, 1)
		o.name, o.advertise, o.noAgent = name, w.network+host, name == "s2"
		w.must(o)
		w.run(name)
	}
	member := func(ctx context.Context, name string) (api.Member, error) {
		members, err := w.api.Members.List(ctx, client.ListOptions{})
		for i := 0; err == nil && i < len(members.Items); i++ {
			if one := members.Items[i]; one.Name == name && one.Voter && one.State == "alive" {
				return one, nil
			}
		}
		return api.Member{}, fmt.Errorf("no voter %s is alive: %w", name, err)
	}
	var before api.Member
	w.eventually("both vote", func(ctx context.Context) (err error) {
		if _, err = member(ctx, "s2"); err == nil {
			before, err = member(ctx, "s3")
		}
		return err
	})
	epoch := w.active("s3", 0)
	w.halt("s3")
	w.eventually("the rotation begins", func(ctx context.Context) error {
		_, err := w.api.CA.Rotate(ctx, api.RotateCABody{Force: true, Names: []string{"s3"}}, client.WriteOptions{})
		return err
	})
	w.eventually("the CA is replaced without s3", func(ctx context.Context) error {
		got, err := w.api.CA.Status(ctx, client.ReadOptions{})
		if err == nil && got.Value.CAs[0].Name == "ca/1" {
			err = fmt.Errorf("%d CAs, %+v", len(got.Value.CAs), got.Value.Rotation)
		}
		return err
	})

	kept := []string{filepath.Join(w.data("s3"), keyring.FileName), filepath.Join(w.data("s3"), cluster.FileJoined),
		filepath.Join(w.conf("s3"), configFile)}
	var was []string
	for _, path := range kept {
		was = append(was, fileText(t, path))
	}
	old, _, _ := w.files("s3").Pair(pki.RoleServer)
	w.must(w.join("s3", pki.RoleServer, 1))
	for i, path := range kept {
		if now := fileText(t, path); now != was[i] {
			t.Errorf("%s has changed: %s", path, now)
		}
	}
	now, _, _ := w.files("s3").Pair(pki.RoleServer)
	if string(pki.KeyHash(old.Leaf)) != string(pki.KeyHash(now.Leaf)) || now.Leaf.Equal(old.Leaf) {
		t.Error("the server has no new certificate of its key")
	}
	w.run("s3")
	w.active("s3", epoch)
	local, err := client.New(client.Config{Addresses: []string{"unix://" + w.data("s3") + "/api.sock"}})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	w.eventually("s3 has caught up", func(ctx context.Context) error {
		got, err := local.CA.Status(ctx, client.ReadOptions{})
		if err != nil || len(got.Value.CAs) != 1 || got.Value.CAs[0].Name != "ca/2" {
			return fmt.Errorf("it has %+v: %w", got.Value.CAs, err)
		}
		after, err := member(ctx, "s3")
		if err == nil && after.ID != before.ID {
			err = fmt.Errorf("it is %s, and was %s", after.ID, before.ID)
		}
		return err
	})
}
