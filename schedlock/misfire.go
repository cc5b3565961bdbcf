package schedlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// catchUp looks for the latest tick that should have started before now.
func (j *Job) catchUp() {
	l := j.locker
	life := l.sess.Context() // of a run: Close waits for it
	ctx, cancel := l.sess.Open(life)
	defer cancel()
	var pause commit.Backoff
	for {
		last, known, err := l.latest(ctx, l.job(j.name))
		if err == nil {
			s := j.settings
			if known && s.misfire == Once {
				if missed, ok := j.times.latest(last, l.opts.now()); ok {
					_, _ = j.run(life, missed, s)
					return
				}
			}
			if known && s.retries > 0 {
				_, _ = j.run(life, last, s)
			}
			return
		}
		if pause.Wait(ctx, err) != nil {
			return
		}
	}
}

// latest returns the latest tick that was claimed.
func (l *Locker) latest(ctx context.Context, j *job) (time.Time, bool, error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	resp, err := l.client.Get(call, j.keys.Runs(), clientv3.WithRange(j.keys.Run(l.horizon())), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil || len(resp.Kvs) == 0 {
		return time.Time{}, false, err
	}
	tick, ok := j.keys.ParseRun(string(resp.Kvs[0].Key))
	return tick, ok, nil
}
