package e2e

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Many bytes go unchanged through each server into a command in an instance, and back: 64 MiB, or OUTSPAN_EXEC_MIB.
func TestExecPipes(t *testing.T) {
	long(t)
	t.Parallel()
	c := startCluster(t, options{servers: 3, agents: 1})
	c.waitVotersWithin(t, 3, patience)
	c.run(t, job{name: "web", count: 1})
	var id string
	for _, i := range list[instanceView](t, c, "/v1/instances") {
		id = i.ID
	}
	leader, mib := c.leader(t), 64
	if text := os.Getenv("OUTSPAN_EXEC_MIB"); text != "" {
		var err error
		if mib, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.servers {
		sent, got := sha256.New(), sha256.New()
		var errs bytes.Buffer
		cmd := exec.Command(c.bin, "instance", "exec", "-i", id, "--", "cat")
		cmd.Env = slices.Concat(c.environment(), []string{"OUTSPAN_ADDR=https://" + s.api()})
		cmd.Stdin = io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), int64(mib)<<20), sent)
		cmd.Stdout, cmd.Stderr = got, &errs
		begun := time.Now()
		if err := runWithin(cmd, 10*time.Minute); err != nil {
			t.Fatalf("through %s: %v: %s", s.Name, err, &errs)
		}
		if !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
			t.Errorf("through %s: what came back differs", s.Name)
		}
		t.Logf("%d MiB through %s and back in %s, it leads: %t", mib, s.Name,
			time.Since(begun).Round(time.Second), s == leader)
	}
}
