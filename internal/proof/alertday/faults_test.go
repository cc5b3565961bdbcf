package alertday

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/exporter"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// fault is what befalls a fleet, with exactly the alerts that fire then, by name.
type fault struct {
	name    string
	prepare func(*fleet) // at the fleet's beginning
	cause   func(*fleet)
	lasts   string   // the series that this expression matches stay as they are for a day
	fires   []string // an alert, and the name that it is about
	members int      // of etcd, if more than one
	later   bool     // the fleet has had its leaders for hours before
	may     []string // that fire if the fault finds something at work
}

// bounded is the MaxHold of what is held on purpose.
var bounded = concurrency.MaxHold(time.Hour)

// faultsOfAll are those that concern all names.
var faultsOfAll = []fault{
	{
		name: "etcd is away",
		cause: func(f *fleet) {
			f.export(&exporter.Options{Probe: 200 * time.Millisecond}) // it publishes the last state for 0.6 s, which is not a minute
			f.sleep(2 * every)
			require.NoError(f.T, f.Stop(0))
		},
		fires: []string{
			"EtcdkitElectionLeaderless shard-7", "EtcdkitExporterDown", "EtcdkitSessionNotRecovered", "EtcdkitUnavailable", "EtcdkitOutagePolicyActive web",
			"EtcdkitSessionLost", "EtcdkitPermitsLost shard-7",
		},
		may: []string{
			"EtcdkitPermitsLost charge", "EtcdkitPermitsLost report", "EtcdkitPermitsLost api", "EtcdkitPermitsLost web", "EtcdkitPermitsLost flow",
			"EtcdkitPermitsLost model", "EtcdkitPermitsLost render",
			"EtcdkitAttemptsLost orders", "EtcdkitAttemptsLost payments", "EtcdkitOutcomesUnconfirmed orders", "EtcdkitOutcomesUnconfirmed payments",
			"EtcdkitRunsLost heartbeat", "EtcdkitRunsLost invoices",
		},
	},
	{
		name:    "a member of etcd is down, and the leader moves",
		members: 3,
		cause: func(f *fleet) {
			leader := f.Leader()
			require.NoError(f.T, f.MoveLeader(f.ctx, (leader+1)%3))
			require.NoError(f.T, f.Stop(leader))
		},
		may: []string{ // a second without a leader is a minute here, which the rule's bound is
			"EtcdkitOldestWait charge", "EtcdkitOldestWait api", "EtcdkitOldestWait web", "EtcdkitOldestWait flow", "EtcdkitOldestWait model", "EtcdkitOldestWait render",
		},
	},
	{
		name:  "etcd is out of space",
		cause: func(f *fleet) { require.NoError(f.T, f.SetNoSpace(f.ctx, true)) },
		fires: []string{ // requests are refused near the quota, before etcd refuses them
			"EtcdkitErrors charge", "EtcdkitErrors api", "EtcdkitErrors web", "EtcdkitErrors heartbeat", "EtcdkitRequestsNearQuota payments",
		},
		may: []string{ // the outcomes and the run of that moment are not recorded
			"EtcdkitOutcomesUnconfirmed orders", "EtcdkitOutcomesUnconfirmed payments", "EtcdkitRunOutlastsPeriod heartbeat",
			"EtcdkitJobNotStarted heartbeat", "EtcdkitJobNotStarted invoices", "EtcdkitRequestsNearQuota orders",
			"EtcdkitErrors orders", "EtcdkitErrors payments", "EtcdkitErrors flow", "EtcdkitErrors invoices", "EtcdkitErrors mail", "EtcdkitErrors model",
			"EtcdkitErrors render", "EtcdkitErrors report",
		},
	},
	{
		name:  "the exporter has ended",
		cause: func(f *fleet) { delete(f.from, "exporter") },
		fires: []string{"EtcdkitExporterGone"},
	},
	{
		name:  "the exporter leaves out names",
		cause: func(f *fleet) { f.export(&exporter.Options{MaxNames: 1}) },
		fires: []string{"EtcdkitSeriesDropped"},
	},
	{
		name: "a job is paused for a day",
		cause: func(f *fleet) {
			l, err := schedlock.New(f.sessions[0], nil)
			require.NoError(f.T, err)
			require.NoError(f.T, l.Pause(f.ctx, "heartbeat", "a test"))
		},
		lasts: "heartbeat|exporter_up",
		fires: []string{"EtcdkitJobPaused heartbeat"},
	},
}

// faults are those that concern one name.
var faults = []fault{
	{
		name: "a process is killed",
		cause: func(f *fleet) {
			s, c := f.process("killed", nil)
			f.acquire(f.semaphore(s, "killed", 2), bounded)
			f.sleep(every) // the exporter sees the grant
			delete(f.from, "killed")
			c.Cut()
			_ = f.ExpireLease(f.ctx, s.Lease())
		},
		fires: []string{"EtcdkitProcessDied"},
	},
	{
		name: "a session loses its lease, and its permit",
		cause: func(f *fleet) {
			s, _ := f.process("lost", nil)
			f.acquire(f.semaphore(s, "lost", 1), bounded)
			f.sleep(every)
			f.revoke(s)
		},
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitPermitsLost lost"},
	},
	{
		name: "work continues after a loss",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "overrun", 1)
			p := f.acquire(sem, bounded)
			require.NoError(f.T, sem.EvictToken(f.ctx, p.Token(), "a test"))
			f.work.Go(func() {
				<-p.Context().Done()
				time.Sleep(2 * time.Second)
				_ = p.Release(context.WithoutCancel(f.ctx))
			})
		},
		fires: []string{"EtcdkitPermitsLost overrun", "EtcdkitOverrun overrun"},
	},
	{
		name: "renewals take more than half of the TTL",
		cause: func(f *fleet) {
			_, c := f.process("late", &concurrency.SessionOptions{TTL: 6 * time.Second, Margin: 500 * time.Millisecond})
			c.Delay(700 * time.Millisecond)
			f.work.Go(func() {
				f.sleep(30 * time.Second)
				c.Heal()
			})
		},
		fires: []string{"EtcdkitRenewalsLate"},
	},
	{
		name: "a hook panics",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "unlucky", 3)
			require.NoError(f.T, sem.Do(f.ctx, busy))
			require.NoError(f.T, sem.SetLimit(f.ctx, unlucky))
			require.NoError(f.T, sem.Do(f.ctx, busy))
		},
		fires: []string{"EtcdkitHookPanics"},
	},
	{
		name: "calls are invalid",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "invalid", 1)
			f.loop(every/2, func() error { return sem.Do(f.ctx, busy, concurrency.Weight(-1)) })
		},
		fires: []string{"EtcdkitErrors invalid"},
	},
	{
		name: "holders are slow",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "slow", 1)
			for range 30 {
				f.loop(0, func() error {
					return sem.Do(f.ctx, func(context.Context, *concurrency.Permit) error { f.sleep(400 * time.Millisecond); return nil })
				})
			}
		},
		fires: []string{"EtcdkitLimitSaturated slow", "EtcdkitOldestWait slow", "EtcdkitWaitsAboveObjective slow"},
	},
	{
		name: "calls find a limit in use",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "full", 1)
			f.acquire(sem, bounded)
			f.loop(every/20, func() error { _, err := sem.TryAcquire(f.ctx); return err })
		},
		fires: []string{"EtcdkitRefusals full"},
	},
	{
		name: "a key of a limiter is full",
		cause: func(f *fleet) {
			key := f.limiter(f.sessions[0], "keys").Key("greedy")
			f.acquire(key, bounded)
			f.loop(every, func() error { return key.Do(f.ctx, busy) })
		},
		fires: []string{"EtcdkitKeysSaturated keys", "EtcdkitOldestWait keys"},
	},
	{
		name: "one client of a limiter asks for too much",
		cause: func(f *fleet) {
			key := f.limiter(f.sessions[0], "greedy").Key("greedy")
			f.acquire(key, bounded)
			f.loop(every/20, func() error { _, err := key.TryAcquire(f.ctx); return err })
		},
		fires: []string{"EtcdkitLimiterRefusals greedy"},
	},
	{
		name:  "a rate is exceeded",
		cause: func(f *fleet) { f.loop(every/50, f.rateOf("exceeded").Allow) },
		fires: []string{"EtcdkitRateExceeded exceeded"},
	},
	{
		name: "a rate is used up, by calls without a deadline",
		cause: func(f *fleet) {
			rate := f.rateOf("backlog")
			for range 100 {
				f.loop(0, func() error { return rate.Wait(f.ctx) })
			}
		},
		fires: []string{"EtcdkitRateExceeded backlog"},
	},
	{
		name: "a mutex is held",
		cause: func(f *fleet) {
			mu, err := concurrency.NewMutex(f.sessions[0], "held")
			require.NoError(f.T, err)
			_, err = mu.Lock(f.ctx, bounded)
			require.NoError(f.T, err)
			f.loop(every, func() error { return mu.Do(f.ctx, busy) })
		},
		fires: []string{"EtcdkitMutexBlocked held"},
	},
	{
		name: "a mutex is held, and calls give up after a short wait",
		cause: func(f *fleet) {
			mu, err := concurrency.NewMutex(f.sessions[0], "bounded")
			require.NoError(f.T, err)
			_, err = mu.Lock(f.ctx, bounded)
			require.NoError(f.T, err)
			f.loop(every/3, func() error { return mu.Do(f.ctx, busy, concurrency.Wait(every/3)) })
		},
		fires: []string{"EtcdkitMutexTimeouts bounded"},
	},
	{
		name: "a process has another limit",
		cause: func(f *fleet) {
			require.NoError(f.T, f.semaphore(f.sessions[0], "differs", 3).Do(f.ctx, busy))
			other := f.semaphore(f.sessions[1], "differs", 4)
			f.loop(every/4, func() error { return other.Do(f.ctx, busy) })
		},
		fires: []string{"EtcdkitSettingsDiffer differs"},
	},
	{
		name: "a scope is full",
		cause: func(f *fleet) {
			f.pay(f.store(f.sessions[0], "bounded", &idempotency.Options{MaxPerScope: 3}), func(n int) (string, any) { return fmt.Sprint(n), "x" })
		},
		fires: []string{"EtcdkitBoundReached bounded"},
	},
	{
		name: "a semaphore is paused, and a request waits",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "paused", 3)
			require.NoError(f.T, sem.Do(f.ctx, busy))
			require.NoError(f.T, sem.SetLimit(f.ctx, 0))
			f.loop(every, func() error { return sem.Do(f.ctx, busy) })
		},
		fires: []string{"EtcdkitPausedQueue paused"},
	},
	{
		name: "a semaphore is paused, and calls are refused",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "closed", 3)
			require.NoError(f.T, sem.Do(f.ctx, busy))
			require.NoError(f.T, sem.SetLimit(f.ctx, 0))
			f.loop(every/20, func() error { _, err := sem.TryAcquire(f.ctx); return err })
		},
		fires: []string{"EtcdkitPausedQueue closed"},
	},
	{
		name: "a semaphore is paused, and calls wait for a second",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "waits", 3)
			require.NoError(f.T, sem.Do(f.ctx, busy))
			require.NoError(f.T, sem.SetLimit(f.ctx, 0))
			f.loop(every/3, func() error { return sem.Do(f.ctx, busy, concurrency.Wait(every/3)) })
		},
		fires: []string{"EtcdkitPausedQueue waits"},
	},
	{
		name: "a process that is cut off holds beyond its MaxHold",
		cause: func(f *fleet) {
			s, c := f.process("cut-off", &concurrency.SessionOptions{TTL: 300 * time.Second})
			f.acquire(f.semaphore(s, "overdue", 1), concurrency.MaxHold(5*time.Second))
			f.sleep(every) // the exporter sees the grant
			c.Cut()
		},
		fires: []string{"EtcdkitHoldersOverdue overdue", "EtcdkitPermitsLost overdue"},
	},
	{
		name:  "a permit is held for an hour",
		cause: func(f *fleet) { f.acquire(f.semaphore(f.sessions[0], "long", 1)) },
		fires: []string{"EtcdkitHoldLong long"},
	},
	{
		name: "another program writes below the prefix",
		cause: func(f *fleet) {
			require.NoError(f.T, f.semaphore(f.sessions[0], "foreign", 1).Do(f.ctx, busy))
			_, err := f.Client().Put(f.ctx, f.sessions[0].NamespacePrefix()+"semaphore/foreign/other", "")
			require.NoError(f.T, err)
		},
		fires: []string{"EtcdkitForeignKeys foreign"},
	},
	{
		name: "an election has no candidate any more",
		prepare: func(f *fleet) {
			s, _ := f.process("candidate", nil)
			f.lead(s, "retired")
			f.ends = append(f.ends, s)
		},
		cause: (*fleet).endPrepared,
		fires: []string{"EtcdkitElectionGone retired"},
	},
	{
		name:    "no process calls a job",
		prepare: func(f *fleet) { f.jobOf(f.sessions[0], "forgotten", func(ctx context.Context) error { return nil }) },
		cause:   func(f *fleet) { f.stopJob("forgotten") },
		fires:   []string{"EtcdkitJobNotStarted forgotten"},
	},
	{
		name: "no process has a job",
		prepare: func(f *fleet) {
			s, _ := f.process("jobs", nil)
			f.jobOf(s, "gone", func(context.Context) error { return nil })
			f.ends = append(f.ends, s)
		},
		cause: (*fleet).endPrepared,
		fires: []string{"EtcdkitJobGone gone"},
	},
	{
		name: "no process has a paused job",
		prepare: func(f *fleet) {
			s, _ := f.process("paused-jobs", nil)
			l, err := schedlock.New(s, nil)
			require.NoError(f.T, err)
			job, err := l.Job("paused-gone", schedlock.Periods(time.Hour), func(context.Context, *schedlock.Run) error { return nil })
			require.NoError(f.T, err)
			job.Next(time.Now()) // it is planned
			require.NoError(f.T, l.Pause(f.ctx, "paused-gone", "a test", schedlock.BeforeFirstRun()))
			f.ends = append(f.ends, s)
		},
		cause: (*fleet).endPrepared,
		fires: []string{"EtcdkitPausedJobGone paused-gone"},
	},
	{
		name: "a job fails",
		cause: func(f *fleet) {
			f.jobOf(f.sessions[0], "failing", func(context.Context) error { return errors.New("of a test") })
		},
		fires: []string{"EtcdkitRunsFailed failing", "EtcdkitJobUnsuccessful failing"},
	},
	{
		name: "a run is lost",
		cause: func(f *fleet) {
			s, _ := f.process("runner", nil)
			running := make(chan struct{}, 1)
			lost := false
			f.jobOf(s, "lost", func(ctx context.Context) error {
				if lost {
					return nil
				}
				lost = true
				running <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			<-running
			f.revoke(s)
		},
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitRunsLost lost", "EtcdkitJobLostRun lost"},
	},
	{
		name: "a job starts late",
		cause: func(f *fleet) {
			l, err := schedlock.New(f.sessions[0], nil)
			require.NoError(f.T, err)
			f.loop(2*every, func() error {
				_, err := l.Do(f.ctx, "late", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(time.Now().Add(-40*time.Second)))
				return err
			})
		},
		fires: []string{"EtcdkitJobLate late"},
	},
	{
		name: "a run lasts beyond the next tick",
		cause: func(f *fleet) {
			f.jobOf(f.sessions[0], "hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		},
		fires: []string{"EtcdkitRunOutlastsPeriod hangs"},
	},
	{
		name: "the outcome of a lost attempt is unknown",
		cause: func(f *fleet) {
			s := f.leave("refuse", idempotency.Refuse, 1)
			f.pay(s, func(int) (string, any) { return "0", "x" })
		},
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitAttemptsLost refuse", "EtcdkitUnknownRequests refuse", "EtcdkitRequestsUnknown refuse"},
	},
	{
		name:  "many of one scope are unknown",
		cause: func(f *fleet) { f.leave("scope", idempotency.Refuse, 25) },
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitAttemptsLost scope", "EtcdkitUnknownRequests scope", "EtcdkitUnknownRequestsOfOneScope scope"},
	},
	{
		name:  "no client repeats a lost attempt",
		cause: func(f *fleet) { f.leave("orphans", idempotency.TakeOver, 1) },
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitAttemptsLost orphans", "EtcdkitOrphanedRequests orphans"},
	},
	{
		name: "a record cannot be read",
		cause: func(f *fleet) {
			at, _, err := f.store(f.sessions[0], "damaged", nil).Begin(f.ctx, key("0"), "x")
			require.NoError(f.T, err)
			require.NoError(f.T, at.Commit(f.ctx, nil))
			for _, record := range f.Keys("/idempotency/damaged/") {
				_, err = f.Client().Put(f.ctx, record, "\x00", clientv3.WithIgnoreLease())
				require.NoError(f.T, err)
			}
		},
		fires: []string{"EtcdkitUnreadableRequests damaged"},
	},
	{
		name: "an outcome is not recorded",
		cause: func(f *fleet) {
			s, c := f.process("unconfirmed", &concurrency.SessionOptions{TTL: 300 * time.Second})
			at, _, err := f.store(s, "unconfirmed", nil).Begin(f.ctx, key("0"), "x")
			require.NoError(f.T, err)
			c.Cut()
			ctx, cancel := context.WithTimeout(f.ctx, every)
			defer cancel()
			require.Error(f.T, at.Commit(ctx, nil))
		},
		fires: []string{"EtcdkitOutcomesUnconfirmed unconfirmed"},
	},
	{
		name: "etcd is near its quota",
		cause: func(f *fleet) {
			f.pay(f.store(f.sessions[0], "quota", &idempotency.Options{NearQuota: 1e-9}), func(n int) (string, any) { return fmt.Sprint(n), "x" })
		},
		fires: []string{"EtcdkitRequestsNearQuota quota"},
	},
	{
		name: "a key is used for other payloads",
		cause: func(f *fleet) {
			f.pay(f.store(f.sessions[0], "reused", nil), func(n int) (string, any) { return "0", n })
		},
		fires: []string{"EtcdkitKeysReused reused"},
	},
	{
		name: "a clock is ahead",
		cause: func(f *fleet) {
			s, _ := f.process("ahead", nil)
			l, err := schedlock.New(s, &schedlock.Options{Now: func() time.Time { return time.Now().Add(3 * time.Second) }})
			require.NoError(f.T, err)
			_, err = l.Do(f.ctx, "ahead", func(context.Context, *schedlock.Run) error { return nil })
			require.NoError(f.T, err)
		},
		fires: []string{"EtcdkitClocksDiffer"},
	},
}
