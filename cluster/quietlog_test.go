package cluster

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// proves that raft's log reports a dead peer when it is first missed, and then twice a minute instead of several times
// a second.
func TestRaftLogIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		config := RaftConfig{}.withDefaults().
			raft("s1", nil, hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info}))
		log := config.Logger.Named("raft")
		began := time.Now()
		for time.Since(began) < 70*time.Second {
			for _, peer := range []raft.Server{{ID: "s2", Address: "10.0.0.2:7640"}, {ID: "s3", Address: "10.0.0.3:7640"}} {
				log.Error("failed to heartbeat to", "peer", peer.Address, "backoff time", time.Since(began),
					"error", errors.New("refused"))
				log.Error("failed to appendEntries to", "peer", peer, "error", errors.New(time.Since(began).String()))
				log.Warn("failed to contact", "server-id", peer.ID, "time", time.Since(began))
			}
			log.Info("entering follower state", "leader", "")
			time.Sleep(200 * time.Millisecond)
		}
		lines := out.String()
		for _, text := range []string{"heartbeat to: peer=10.0.0.2:7640", "server-id=s3",
			"appendEntries to: peer=\"{Voter s2 10.0.0.2:7640}\""} {
			if n := strings.Count(lines, text); n != 3 {
				t.Errorf("%q was written %d times in 70 s, want 3", text, n)
			}
		}
		if n := strings.Count(lines, "left_out="); n != 12 {
			t.Errorf("%d lines say how many were left out, want 12", n)
		}
		if n := strings.Count(lines, "entering follower state"); n != 350 {
			t.Errorf("lines about no peer: %d of 350", n)
		}
	})
}
