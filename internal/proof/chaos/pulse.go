package chaos

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Pulse records when etcd itself is slow, until the returned function is called or ctx
// ends: it writes, asks each member when it has heard of that, and tells of what took
// long. A busy machine makes for that, or its disk. It is for the time in which nothing
// harms etcd any more.
func Pulse(ctx context.Context, rec *history.Recorder, writer *clientv3.Client, members ...*clientv3.Client) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	beats.Go(func() {
		for ctx.Err() == nil {
			begun := time.Now()
			beat(ctx, writer, members)
			if late := time.Since(begun); late > stall {
				rec.Add(history.Event{Kind: history.KindCount, Name: check.CountSlow, N: int64(late)})
			}
			_ = sleep(ctx, 50*time.Millisecond)
		}
	})
	return func() { cancel(); beats.Wait() }
}

// beat writes once, and returns when all members have heard of that, or ctx has ended.
func beat(ctx context.Context, writer *clientv3.Client, members []*clientv3.Client) {
	const pulse, pause = root + "pulse", 10 * time.Millisecond
	put, err := writer.Put(ctx, pulse, "")
	for err != nil && sleep(ctx, pause) == nil {
		put, err = writer.Put(ctx, pulse, "")
	}
	if err != nil {
		return
	}
	for _, m := range members {
		for {
			resp, err := m.Get(ctx, pulse, clientv3.WithSerializable(), clientv3.WithCountOnly())
			if err == nil && resp.Header.Revision >= put.Header.Revision || sleep(ctx, pause) != nil {
				break
			}
		}
	}
}
