package chaos

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// stall is the shortest standstill of this process that is recorded.
const stall = 100 * time.Millisecond

// stoodStill counts milliseconds.
const stoodStill = "milliseconds without a processor"

// watchStalls records each standstill of this process, until ctx ends: then calls return
// late for no other reason. The record is about one client, or about all if that is "".
func (env *Env) watchStalls(ctx context.Context, client string) {
	const nap = 10 * time.Millisecond
	for ctx.Err() == nil {
		begun := time.Now()
		_ = Sleep(ctx, nap)
		if late := time.Since(begun) - nap; late > stall {
			env.Recorder.Add(history.Event{Kind: history.KindCount, Name: check.CountStall, N: int64(late), Client: client})
			env.Stats.Add("stalls", 1)
			env.Stats.Add(stoodStill, int(late/time.Millisecond))
		}
	}
}
