package cli

import (
	"net"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

func agentAt(ts *testscript.TestScript, neg bool, args []string) {
	c := ts.Value(clusterKey{}).(*scriptCluster)
	if neg || len(args) != 3 || c.ts == nil {
		ts.Fatalf("usage: agent NAME API GOSSIP, after cluster")
	}
	c.startAgent(args[0], args[1], args[2])
}

func holdPort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold VAR")
	}
	c := ts.Value(clusterKey{}).(*scriptCluster)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	if c.held == nil {
		c.held = map[string]net.Listener{}
	}
	c.held[args[0]] = l
	ts.Defer(func() { _ = l.Close() }) // fails if letgo has closed l
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

func letGo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: letgo VAR")
	}
	l := ts.Value(clusterKey{}).(*scriptCluster).held[args[0]]
	if l == nil {
		ts.Fatalf("nothing holds %s", args[0])
	}
	ts.Check(l.Close())
}
