package chaos

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/check"
)

// stall is the shortest standstill of this process that is worth telling.
const stall = 100 * time.Millisecond

// watchStalls records when the whole process stood still, until ctx ends: then calls
// return late, and nobody is to blame.
func (w *World) watchStalls(ctx context.Context) {
	const nap = 10 * time.Millisecond
	for ctx.Err() == nil {
		begun := time.Now()
		_ = sleep(ctx, nap)
		if late := time.Since(begun) - nap; late > stall {
			w.Recorder.Count(check.CountStall, int64(late))
			w.Stats.Add("stalls", 1)
		}
	}
}
