package chaos

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// stall is the shortest standstill of this process that is worth telling.
const stall = 100 * time.Millisecond

// stoodStill counts milliseconds.
const stoodStill = "milliseconds without a processor"

// watchStalls records when this process stood still, until ctx ends: then calls return
// late, and nobody is to blame. It tells that of one client, or of all if that is "".
func (env *Env) watchStalls(ctx context.Context, client string) {
	const nap = 10 * time.Millisecond
	for ctx.Err() == nil {
		begun := time.Now()
		_ = sleep(ctx, nap)
		if late := time.Since(begun) - nap; late > stall {
			env.Recorder.Add(history.Event{Kind: history.KindCount, Name: check.CountStall, N: int64(late), Client: client})
			env.Stats.Add("stalls", 1)
			env.Stats.Add(stoodStill, int(late/time.Millisecond))
		}
	}
}
