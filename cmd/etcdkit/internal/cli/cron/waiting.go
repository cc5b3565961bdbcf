package cron

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/commit"
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

// waiting calls call, and again while etcd does not answer or refuses it for what an operator can mend, and the command was not
// started, for --wait-for-etcd at most: cron calls each machine once, and an outage of seconds at that time would leave the tick
// out on all of them. It returns an error of the last call.
func (v *scheduledRun) waiting(ctx context.Context, call func() error) error {
	until := time.Now().Add(v.patient)
	pause := commit.Backoff{Least: readEvery, Most: mostPause}
	refused := false
	for {
		err := call()
		away := exit.CodeOf(err) == exit.Unreachable
		if !away && !mendable(err) || v.started || ctx.Err() != nil || !time.Now().Before(until) {
			return err
		}
		wait := readEvery
		switch {
		case away && v.away.IsZero():
			v.away = time.Now()
			v.Say("etcd does not answer, and this call waits for it, until %s: %v", output.Instant(until), err)
		case !away && !refused:
			refused = true
			v.Say("etcd refuses this call, which is repeated until %s: %v", output.Instant(until), err)
		}
		if !away {
			wait = pause.Next()
		}
		if err := verb.Pause(ctx, min(wait, time.Until(until))); err != nil {
			return err
		}
	}
}

// mostPause is the longest pause, but for jitter, before a call that etcd has refused is repeated. Each call is a login.
const mostPause = commit.DeniedPause

// mendable reports whether a call is accepted again once an operator has acted.
func mendable(err error) bool {
	return exit.CodeOf(err) == exit.Denied || commit.Mendable(err)
}

// answered says that etcd answers again, if it did not.
func (v *scheduledRun) answered() {
	if !v.away.IsZero() {
		v.Say("etcd answers again, after %s", output.Brief(time.Since(v.away)))
		v.away = time.Time{}
	}
}
