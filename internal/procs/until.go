package procs

import (
	"context"
	"fmt"
	"time"
)

// Until calls done repeatedly until done returns nil. It waits for the duration pause after each failed call. If the
// duration limit passes or ctx ends first, Until returns an error that wraps the last error of done.
func Until(ctx context.Context, limit, pause time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", limit, err)
		}
	}
}
