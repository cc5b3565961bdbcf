package embedtest

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// waitRead waits until the member serves a linearizable read, etcd fails or ctx ends.
func (r *running) waitRead(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	err := retry(ctx, func() error { return r.etcd.Server.LinearizableReadNotify(ctx) })
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	return err
}

// waitRead waits until the cluster serves a linearizable read or ctx ends. Reads fail while
// there is no leader.
func waitRead(ctx context.Context, cl *clientv3.Client) error {
	return retry(ctx, func() error {
		_, err := cl.Get(ctx, "embedtest/ready", clientv3.WithCountOnly())
		return err
	})
}

func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		if end := sleep(ctx, pollEvery); end != nil {
			return fmt.Errorf("%w (last: %v)", end, err) //nolint:errorlint // the last error is only shown
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
