// Package thumbs is an example of code that works under a permit, with a unit test that
// takes the permit away in the middle of the work: see its test.
//
//	go test -v ./examples/quickstart/testing
package thumbs

import (
	"context"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Render renders the pages one after the other, under one permit, and returns how many are
// complete. It stops between two pages if ctx ends or the permit is lost, and returns the
// errors of [concurrency.Semaphore.Do].
func Render(ctx context.Context, sem *concurrency.Semaphore, pages []func(context.Context)) (complete int, err error) {
	err = sem.Do(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
		for _, page := range pages {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			page(ctx)
			complete++
		}
		return nil
	})
	return complete, err
}
