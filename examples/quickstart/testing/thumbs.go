// Package thumbs is an example of code that works under a permit. Its tests have two replicas of the service on one
// etcd, and two faults that services have in production: a permit that is lost during the work, and an etcd that is
// away.
//
//	go test -v ./examples/quickstart/testing
package thumbs

import (
	"context"

	"github.com/etcdkit/etcdkit/concurrency"
)

// Render renders the pages in order, under one permit, and returns how many are complete. If ctx
// ends or the permit is lost, Render stops before the next page. It returns the errors of
// [concurrency.Semaphore.Do].
func Render(ctx context.Context, sem *concurrency.Semaphore, pages ...func(context.Context)) (complete int, err error) {
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
