package agent

import (
	"bytes"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
)

// L2: what the servers acknowledged after a snapshot was saved is told again when it is restored: an instance that has come up, or has stopped, since then.
func TestReportsBehindARestore(t *testing.T) {
	for name, stop := range map[string]bool{"ready": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.start()
				group := b.submit("web", sh(""))
				id := b.place(group, 0, b.node(), nil)
				want := fsm.ObservedReady
				if stop {
					b.pass(time.Second)
					b.stop(id, nil)
					want = fsm.ObservedStopped
				}
				var saved bytes.Buffer
				must(t, fsm.WriteSnapshot(&saved, b.m.State()))
				b.pass(time.Second)
				b.want(id, want, "")
				must(t, b.m.Restore(&saved))
				b.apply(&fsm.RestoreMark{})
				if got := b.instance(id).Status.Observed; got == want {
					t.Fatalf("the snapshot has it %s already", got)
				}
				b.pass(5 * time.Second)
				b.want(id, want, "")
			})
		})
	}
}
