package main

import (
	"context"
	"fmt"
)

// singleWrites measures how fast clients set labels of nodes. Each write has a request id, and is acknowledged when it
// is committed and applied.
func singleWrites(ctx context.Context, st *stage) error {
	for _, clients := range writers() {
		leader, err := st.fleet.Leader(ctx)
		if err != nil {
			return err
		}
		r, err := postLoad(ctx, st.fleet.Credentials(), leader.API(), clients, st.o.length, func(n int64) (string, any) {
			return "/v1/nodes/" + st.crowd.Name(int(n)%st.crowd.Len()) + "/label", labelBody(n)
		})
		if err != nil {
			return err
		}
		behind := st.limits.overHTTPS[clients]
		st.add(Figure{
			What: fmt.Sprintf("%d clients", clients), Value: r.rate(), Unit: PerSecond, Goal: atLeast(0.8 * behind),
			Limit: Limit{Value: behind, Of: "bare raft over HTTPS"},
			Note: fmt.Sprintf("empty handler %.0f/s, bare raft %.0f/s", st.limits.empty[clients],
				st.limits.raftWrites[clients]),
		})
		st.add(Figure{What: fmt.Sprintf("%d clients, p99", clients), Value: millis(quantile(r.times, 0.99)), Unit: Millis})
	}
	return st.quiet(ctx)
}
