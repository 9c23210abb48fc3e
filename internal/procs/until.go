package procs

import (
	"context"
	"fmt"
	"time"
)

// Until calls done again and again, with a pause between calls, until done returns nil. After limit, or when ctx ends,
// Until returns an error that wraps the last error of done.
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
