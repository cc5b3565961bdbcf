package schedlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// PauseOption configures a call of Pause.
type PauseOption func(*pausing)

type pausing struct{ anyName bool }

// BeforeFirstRun lets Pause accept a job of which nothing is in etcd, such as one before its first
// run. Without it Pause returns ErrUnknownJob, so that a misspelled name is noticed. Jobs lists a
// job that was paused from then on.
func BeforeFirstRun() PauseOption { return func(p *pausing) { p.anyName = true } }

// Pause keeps a job from starting, in the whole fleet, until Resume. An active run is not affected;
// ticks that come meanwhile are skipped. Pausing a paused job replaces the reason. Pause returns
// ErrInvalid if the name, the reason or an option is out of range, and ErrUnknownJob if nothing of
// the job is in etcd, this Locker has not used it, and BeforeFirstRun is not given. After
// ErrClosed, ctx's error or an error of etcd's the job may be paused or not.
func (l *Locker) Pause(ctx context.Context, name, reason string, opts ...PauseOption) error {
	var p pausing
	value := record.Pause{By: engine.Author(ctx, l.sess), Reason: reason}
	err := cmp.Or(engine.Apply(opts, &p), engine.CheckReason(reason), checkName(name))
	if err == nil && !p.anyName {
		if err = operatorOf(l, name).known(ctx); errors.Is(err, ErrUnknownJob) {
			err = fmt.Errorf("%w (if the name is right, pass BeforeFirstRun)", err)
		}
	}
	if err == nil {
		err = operatorOf(l, name).operate(ctx, pauses, rand.Text(), func(k keyspace.Job, at time.Time) clientv3.Op {
			value.AtMS = at.UnixMilli()
			return clientv3.OpPut(k.Pause(), value.Encode())
		})
	}
	return l.about("pause", name, err)
}

// Resume lets a paused job start again, from its next tick on: OnMisfire(Once) starts no tick from
// before the call. That is a matter of etcd's order if the job has started since. Otherwise it is the time of the
// call by the clock of this process, kept within a minute of the clocks of the processes that run jobs; if it is
// not, a warning is logged. With none alive, it is not before the plan was stamped last, once a day. Resuming a job that is not paused
// changes nothing, and is no error.
// Resume returns ErrInvalid if the name is out of range, and ErrUnknownJob if nothing of the job is
// in etcd and this Locker has not used it. After ErrClosed, ctx's error or an error of etcd's the
// job may be paused or not.
func (l *Locker) Resume(ctx context.Context, name string) error {
	err := operatorOf(l, name).known(ctx)
	if err == nil {
		err = operatorOf(l, name).operate(ctx, resumes, rand.Text(), func(k keyspace.Job, _ time.Time) clientv3.Op { return clientv3.OpDelete(k.Pause()) })
	}
	return l.about("resume", name, err)
}

// UnlockOption configures a call of Unlock.
type UnlockOption func(*unlocking)

type unlocking struct{ only *int64 }

// OnlyRun lets Unlock end only the run with this token, the one that the caller has looked at
// (Status.Token, Record.Token); with the token 0, only a cooldown. If another run is active by then,
// or none, Unlock returns ErrNotRunning and changes nothing.
func OnlyRun(token int64) UnlockOption { return func(u *unlocking) { u.only = &token } }

// Unlock ends the active run of a job by force, with a reason, and lets the job start again. The
// run's context ends with ErrUnlocked when its process receives the event, possibly after another
// run has started. The end that is recorded is the time of the call as for Resume. Unlock ends a cooldown (AtLeast), too, also after its run (Record.Cooled): OnMisfire counts ticks that come after
// that as missed. The tick of an active run is not started again, whatever Retries allows. Which run is active can change between the look at it and the call: pass OnlyRun.
// Unlock returns ErrNotRunning if the job neither runs nor cools down, or if OnlyRun excludes what it
// does, ErrUnknownJob if nothing of the job is in etcd and this Locker has not used it, and ErrInvalid if the name, the reason or an option is out of range. After ErrClosed, ctx's
// error or an error of etcd's the run may be ended or not.
func (l *Locker) Unlock(ctx context.Context, name, reason string, opts ...UnlockOption) error {
	var u unlocking
	err := cmp.Or(engine.Apply(opts, &u), engine.CheckReason(reason), checkName(name))
	if err == nil {
		err = operatorOf(l, name).unlock(ctx, reason, u)
	}
	return l.about("unlock", name, err)
}

// Remove says that this process does not use a job any more of which it has no Job: by Do, Wrap or gocronlock.New. If its
// settings are in force, they are not any more, and a call of another process may have others. Call it when the calls for the
// job have returned: a later one uses the job again. An active run continues. Records and plan stay until Forget.
//
// Remove returns ErrInUse if this process has the job by Job or gocronlock.Cron.Plan, which have a Remove of their own, and
// ErrInvalid if the name is out of range. After ErrClosed, ctx's error or an error of etcd's the settings may be in force or not;
// it can be called again.
func (l *Locker) Remove(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil && l.plans.has(name) {
		err = fmt.Errorf("%w by this process: call Remove of its Job, or of what gocronlock.NewCron returned", ErrInUse)
	}
	if err == nil {
		ctx, cancel := l.untilClose(ctx)
		defer cancel()
		err = l.plans.unuse(ctx, name, nil)
	}
	return l.about("remove", name, err)
}

// Forget removes what etcd has of a job that no process uses any more: its records, its plan and its pause. Then
// Jobs does not list it. Its ticks up to the latest record stay refused as Late for a day, so that a
// process that was suspended does not start one of them again. After that day it could, if its LateBy
// allows. A later tick starts as that of a new job.
//
// Forget returns ErrInUse, and removes nothing, if the job runs or cools down, if a live process has it by
// Job or gocronlock.Cron.Plan, has stored its settings (see Remove) or has claimed one of the recorded ticks, if this Locker uses it, or if something
// of the job changes meanwhile. A live process that uses the job otherwise and has no part in what is recorded
// cannot be known: for that process it is a new job. Forget returns ErrUnknownJob if nothing of the job
// is in etcd, and ErrInvalid if the name is out of range. After ErrClosed, ctx's error or an error of
// etcd's the job may be forgotten or not.
func (l *Locker) Forget(ctx context.Context, name string) error {
	err := checkName(name)
	if err == nil {
		err = operatorOf(l, name).forget(ctx)
	}
	return l.about("forget", name, err)
}

// RequestRun asks the processes that use the job to run it now, once, and returns the request's id. One of
// those starts it that have a Job of this name that a cron library has asked for its fire times; of Do,
// Wrap and the lockers for gocron the function is not known. The run is as one by Job.Trigger, for a tick
// of its own: the time at which that process starts it, by its own clock. The clock of the caller has no
// part in it. RequestRun does not wait for the run: Requested returns its record once it has started.
//
// A panic in the run is reported as its failure, and does not end the process.
//
// No process starts the run if the job is paused, runs or cools down, or if none receives the request
// within a minute (LateBy, if that is shorter). A further request replaces one that no process has started.
//
// RequestRun returns ErrInvalid if the name or the reason is out of range, and ErrUnknownJob if nothing
// of the job is in etcd. After ErrClosed, ctx's error or an error of etcd's a run may be started or not.
func (l *Locker) RequestRun(ctx context.Context, name, reason string) (id string, err error) {
	if err = cmp.Or(engine.CheckReason(reason), checkName(name)); err == nil {
		err = operatorOf(l, name).known(ctx)
	}
	var lease clientv3.LeaseID
	if err == nil {
		ctx, cancel := l.untilClose(ctx)
		defer cancel()
		lease, err = l.grant(ctx, requestedFor)
	}
	if err == nil {
		id = rand.Text()
		value := record.RequestedRun{Nonce: id, By: engine.Author(ctx, l.sess), Reason: reason, SentMS: l.opts.Now().UnixMilli()}.Encode()
		// After the run has started the request is gone, and a late copy must not put it again.
		err = operatorOf(l, name).operate(ctx, aside, id, func(k keyspace.Job, _ time.Time) clientv3.Op {
			return clientv3.OpPut(k.RequestedRun(), value, clientv3.WithLease(lease))
		})
	}
	if err != nil {
		return "", l.about("request a run of", name, err)
	}
	return id, nil
}

// Requested returns the record of the run that was started for a request, see RequestRun. It returns
// ErrGone if no process has started one, or its record was removed, ErrInvalid if the name is out of range,
// ErrClosed, ctx's error or an error of etcd's.
func (l *Locker) Requested(ctx context.Context, name, id string) (Record, error) {
	runs, err := l.History(ctx, name)
	if err != nil {
		return Record{}, err
	}
	for _, r := range runs {
		if r.Request == id && id != "" {
			return r, nil
		}
	}
	return Record{}, l.about("find the requested run of", name, ErrGone)
}
