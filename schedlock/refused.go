package schedlock

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/join"
)

// refusals are those of a call that is the only one of this process for its tick, such as that of a cron library. An etcd that
// cannot be reached delays such a call until it is too late for the tick, and so does one that refuses it.
type refusals struct {
	pause  commit.Backoff
	latest error // nil: there was none
}

// await waits after an error, and returns nil if the call is to try again. An earlier claim of the call whose outcome is unknown
// is removed then: it could keep the next one from the tick. Otherwise await returns the error, joined with why ctx has ended,
// and with the latest refusal if that was while a claim was in flight.
func (r *refusals) await(ctx context.Context, k *claim, err error) error {
	switch {
	case !k.lasting:
		return err
	case !commit.Mendable(err):
		if r.latest != nil && ended(ctx) != nil {
			return joinEnd(ctx, join.Errors(r.latest, err))
		}
		return err
	case ended(ctx) != nil:
		return joinEnd(ctx, err)
	}
	if r.latest == nil {
		r.pause = commit.Backoff{Least: 100 * time.Millisecond, Most: 5 * time.Second}
		k.log.Warn("etcd refuses to start a tick, which is repeated", zap.String("job", k.job.name), zap.Time("tick", k.tick), zap.Error(k.sess.Explain(err)))
	}
	r.latest = err
	if r.pause.Wait(ctx, err) != nil {
		return joinEnd(ctx, err)
	}
	if k.discarded == nil {
		return nil
	}
	select {
	case <-k.discarded:
		k.discarded = nil
		k.withdrawn = true // events of the removed claim may still arrive
		return nil
	case <-ctx.Done():
		return joinEnd(ctx, err)
	}
}
