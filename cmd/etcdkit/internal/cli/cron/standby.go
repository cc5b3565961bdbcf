package cron

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/schedlock"
)

// This file has what a call of `jobs run` does that does not claim its tick.

// follow is on standby until the run of another machine has ended, and reports how. If the run is lost, it starts the tick
// again as --retries permits. gone is true if the record is not there any more: that machine has taken its claim back, and ran
// nothing, or the record was removed.
func (v *scheduledRun) follow(ctx context.Context, l *schedlock.Locker, tick time.Time, renewed <-chan struct{}) (gone bool, err error) {
	why := fmt.Sprintf("--retries %d", v.retries)
	if v.retries > 0 {
		if res, ran, err := v.claim(ctx, l, v.options(tick, 0), renewed); ran || err != nil {
			return false, err
		} else if res.Outcome != schedlock.Claimed {
			why = skippedReason(res)
		}
	}
	v.followed = tick
	r, err := v.ended(ctx, l, tick, time.Time{})
	switch {
	case errors.Is(err, schedlock.ErrGone):
		return true, nil
	case err != nil:
		return false, err
	case r.State == schedlock.RunLost:
		return false, v.notRun(fmt.Sprintf("the run of tick %s by %s was lost, and is not repeated: %s", output.Instant(tick), output.OrDash(r.Owner), why))
	case r.State == schedlock.RunUnreadable:
		return false, v.notRun(fmt.Sprintf("what became of tick %s is not known: %s", output.Instant(tick), r.Error))
	case r.State == schedlock.RunUnlocked:
		return false, v.notRun(fmt.Sprintf("the run of tick %s by %s was unlocked by %s", output.Instant(tick), output.OrDash(r.Owner), output.OrDash(r.By)))
	}
	return false, v.elsewhere(fmt.Sprintf("tick %s was run elsewhere, by %s: %s", output.Instant(tick), output.OrDash(r.Owner), r.State))
}

// A call on standby reads the record each readEvery, and waits for etcd as long as awayFor.
const (
	readEvery = time.Second
	awayFor   = time.Minute
)

// ended waits until the run of a tick has ended, and returns its record. If until is not zero, it returns what it has read after
// that in any case.
func (v *scheduledRun) ended(ctx context.Context, l *schedlock.Locker, tick, until time.Time) (schedlock.Record, error) {
	answered := time.Now()
	for {
		call, cancel := context.WithTimeout(ctx, v.Call.Etcd.Timeout)
		r, err := l.Get(call, v.Name, tick)
		cancel()
		code := exit.CodeOf(err)
		switch away := code == exit.Unreachable && ctx.Err() == nil && time.Since(answered) < awayFor; {
		case err != nil && !away, err == nil && r.State != schedlock.RunActive, !until.IsZero() && time.Now().After(until):
			return r, err
		case err == nil:
			answered = time.Now()
		}
		if err := verb.Pause(ctx, readEvery); err != nil {
			return r, err
		}
	}
}

// lossSeen is how much later than its lease ends a run is seen as lost, as a rule: etcd ends a lease some seconds late.
const lossSeen = 5 * time.Second

// expired waits until an active run has ended, at most for the time in which the lease of a process that has died ends: a
// supervisor that starts this call in its place does so before that. An election of etcd's leader has a lease begin anew, so that
// is two TTLs. It returns the record of the run then, or the error if the latest read has failed.
func (v *scheduledRun) expired(ctx context.Context, l *schedlock.Locker, last schedlock.Record) (*schedlock.Record, error) {
	ttl, _, err := v.Times()
	if err != nil {
		return nil, err
	}
	v.followed = last.Tick
	r, err := v.ended(ctx, l, last.Tick, time.Now().Add(2*ttl+lossSeen))
	return &r, err
}

// elsewhere is the end of a call whose command another machine has run. It prints nothing unless it is asked to: cron sends
// what is printed by mail, each night and from each machine but one.
func (v *scheduledRun) elsewhere(text string) error {
	if !v.verbose {
		return nil
	}
	_, err := fmt.Fprintf(v.Call.Std.Out, "job %s: %s\n", v.Name, output.Printable(text))
	return err
}

// notRun is the end of a call for which no command was run.
func (v *scheduledRun) notRun(reason string) error {
	return exit.Errorf(exit.NotAcquired, "job %s: %s", v.Name, reason)
}
