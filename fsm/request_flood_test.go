package fsm

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// refuse applies a write whose refusal has a long message, and returns the refusal. The parameter id is the request id.
func (g *glutton) refuse(actor model.Actor, id string) *model.Error {
	g.t.Helper()
	name := model.JobName(strings.Repeat("é", 2000))
	var results []Result
	g.s, results = g.s.Apply(g.s.Index+1, 1,
		Entry{Format: model.CurrentFormat, At: g.s.Now, Wall: 1, Actor: actor, Request: model.RequestID(id),
			Body:   strings.Repeat("b", 64),
			Groups: [][]Command{{&JobScale{Job: name + model.JobName(id), Group: "app", Count: 1}}}})
	if results[0].Refusal == nil {
		g.t.Fatalf("request %s was accepted", id)
	}
	return results[0].Refusal
}

// Each refused request takes at most about 1 KiB of a server's memory, because most refusals of one actor are stored
// without their message. The refusal of another actor still has a long message.
func TestRequestsOfOneCallerAreBoundedByBytes(t *testing.T) {
	const n = maxRequests / 10 // all stored requests may take 100 MiB, so these may take 10 MiB
	g := &glutton{t: t, s: NewState()}
	heapNow := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	before := heapNow()
	for i := range n {
		g.refuse("agent:n1", fmt.Sprintf("%064d", i))
	}
	grown := heapNow() - before
	t.Logf("%d requests take %d KiB", g.s.Requests.Len(), grown>>10)
	if grown > 10<<20 || g.s.Requests.Len() != n {
		t.Errorf("%d requests take %d KiB, want less than 10 MiB", g.s.Requests.Len(), grown>>10)
	}
	first := g.refuse("cli:ann", "mine")
	if len(first.Message) < maxRefusal/2 {
		t.Errorf("another caller is told %q", first.Message)
	}
	if again := g.refuse("agent:n1", fmt.Sprintf("%064d", n-1)); again.Code != first.Code {
		t.Errorf("a repeated request gets %v", again)
	}
	runtime.KeepAlive(g.s)
}
