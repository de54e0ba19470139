package lab

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// poll tries until it succeeds. Its error has the last one of try.
func poll(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		var final finalError
		if errors.As(err, &final) {
			return final.error
		}
		if last == nil || ctx.Err() == nil { // else it says only that time is up
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		}
	}
}

// finalError ends a poll at once.
type finalError struct{ error }
