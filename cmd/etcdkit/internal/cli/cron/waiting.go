package cron

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
)

// mostPatient bounds how long a call waits for etcd by default: cron sends what a call has said when that has ended.
const mostPatient = time.Hour

// patience returns how long a call waits for etcd by default. After half of the time between two ticks a run is too old to be
// that of a call, see taken. With --every the tick is when the run starts, and the next call must not come too early after it.
func (o occasion) patience() time.Duration {
	tick := o.due()
	if tick.IsZero() {
		return 0
	}
	if o.every > 0 {
		return min(o.every-apartBy(o.every), mostPatient)
	}
	return min(o.interval(tick)/2, mostPatient)
}

// waiting calls call, and again while etcd does not answer and the command was not started, for --wait-for-etcd at most: cron calls
// each machine once, and an outage of seconds at that time would leave the tick out on all of them. It returns an error of the
// last call.
func (v *scheduledRun) waiting(ctx context.Context, call func() error) error {
	until := time.Now().Add(v.patient)
	for {
		err := call()
		if exit.CodeOf(err) != exit.Unreachable || v.started || ctx.Err() != nil || !time.Now().Before(until) {
			return err
		}
		if v.away.IsZero() {
			v.away = time.Now()
			v.Say("etcd does not answer, and this call waits for it, until %s: %v", output.Instant(until), err)
		}
		if err := verb.Pause(ctx, min(readEvery, time.Until(until))); err != nil {
			return err
		}
	}
}

// answered says that etcd answers again, if it did not.
func (v *scheduledRun) answered() {
	if !v.away.IsZero() {
		v.Say("etcd answers again, after %s", output.Brief(time.Since(v.away)))
		v.away = time.Time{}
	}
}
