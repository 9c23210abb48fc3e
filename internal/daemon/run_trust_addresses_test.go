package daemon

import (
	"fmt"
	"slices"
	"testing"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/model"
)

// Newcomers and agents are told of servers in the log's configuration only, at most 32 of them and the answering one
// first, however many servers gossip shows.
func TestAddressesOfMembers(t *testing.T) {
	var servers []cluster.ServerStatus
	for i := range 2000 {
		servers = append(servers, cluster.ServerStatus{ID: model.ServerID(fmt.Sprintf("claimed%04d", i)),
			Address: fmt.Sprintf("10.9.0.1:%d", 1000+i)})
	}
	members := []cluster.ServerStatus{{ID: "s1", Address: "10.0.0.1:7640", Member: true},
		{ID: "s2", Address: "10.0.0.2:7640", Member: true}, {ID: "s3", Address: "10.0.0.3:7640", Member: true}}
	gossipOf := func(id model.ServerID) string {
		if id == "s3" {
			return "" // gossip does not know it now
		}
		return string(id) + ":7642"
	}
	api, gossip := addressesOf(slices.Concat(servers, members), "s2", gossipOf)
	if want := []string{"10.0.0.2:7640", "10.0.0.1:7640", "10.0.0.3:7640"}; !slices.Equal(api, want) {
		t.Errorf("the addresses are %q, want %q", api, want)
	}
	if want := []string{"s2:7642", "s1:7642"}; !slices.Equal(gossip, want) {
		t.Errorf("the gossip addresses are %q, want %q", gossip, want)
	}
	for i := range servers {
		servers[i].Member = true
	}
	api, gossip = addressesOf(servers, servers[50].ID, gossipOf)
	if len(api) != 32 || len(gossip) != 32 || api[0] != servers[50].Address {
		t.Errorf("%d addresses, the first is %s, and %d gossip addresses", len(api), api[0], len(gossip))
	}
}
