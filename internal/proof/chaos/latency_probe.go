package chaos

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// ProbeLatency records each time at which etcd itself is slow, until the returned function is
// called or ctx ends: it writes a key and reads from each member until that member has applied
// the write. A busy machine or its disk is the reason then. It is for phases in which no
// nemesis is active.
func ProbeLatency(ctx context.Context, rec *history.Recorder, writer *clientv3.Client, members ...*clientv3.Client) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var probes sync.WaitGroup
	probes.Go(func() {
		for ctx.Err() == nil {
			begun := time.Now()
			probe(ctx, writer, members)
			if late := time.Since(begun); late > stall {
				rec.Add(history.Event{Kind: history.KindCount, Name: check.CountSlow, N: int64(late)})
			}
			_ = Sleep(ctx, 50*time.Millisecond)
		}
	})
	return func() { cancel(); probes.Wait() }
}

// probe writes once, and returns when all members have applied the write, or ctx has ended.
func probe(ctx context.Context, writer *clientv3.Client, members []*clientv3.Client) {
	const key, pause = root + "latency", 10 * time.Millisecond
	put, err := writer.Put(ctx, key, "")
	for err != nil && Sleep(ctx, pause) == nil {
		put, err = writer.Put(ctx, key, "")
	}
	if err != nil {
		return
	}
	for _, m := range members {
		for {
			resp, err := m.Get(ctx, key, clientv3.WithSerializable(), clientv3.WithCountOnly())
			if err == nil && resp.Header.Revision >= put.Header.Revision || Sleep(ctx, pause) != nil {
				break
			}
		}
	}
}
