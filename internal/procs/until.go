package procs

import (
	"context"
	"fmt"
	"time"
)

// Until calls done every pause until it returns nil. After limit, or when ctx ends, it returns done's last error.
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
