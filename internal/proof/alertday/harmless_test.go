package alertday

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// harmless are failures for which no operator is wanted: none of them fires an alert.
var harmless = []fault{
	{
		name: "a process is stopped while it works",
		cause: func(f *fleet) {
			s, _ := f.process("stopped", nil)
			sem := f.semaphore(s, "stopped", 2)
			f.loop(every/10, func() error { return sem.Do(f.ctx, busy) })
			f.work.Go(func() {
				f.sleep(2 * every)
				_ = s.Close(f.ctx)
			})
		},
	},
	{
		name: "a function panics",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "panics", 2)
			f.loop(every, func() error {
				return contained(func() error {
					return sem.Do(f.ctx, func(context.Context, *concurrency.Permit) error { panic("of a test") })
				})
			})
		},
	},
	{
		name: "a limit is lowered, and the demand fits",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "lowered", 3)
			f.loop(every/4, func() error { return sem.Do(f.ctx, busy) })
			f.sleep(every / 2)
			require.NoError(f.T, sem.SetLimit(f.ctx, 1))
		},
	},
	{
		name: "a limit's key is deleted",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "restored", 3)
			require.NoError(f.T, sem.Do(f.ctx, busy))
			f.loop(every/4, func() error { return sem.Do(f.ctx, busy) })
			f.erase("/semaphore/restored/limit")
		},
	},
	{
		name: "a key's own limit is deleted",
		cause: func(f *fleet) {
			lim := f.limiter(f.sessions[0], "unset")
			require.NoError(f.T, lim.Key("a").SetLimit(f.ctx, 0, concurrency.CreateLimit()))
			f.erase("/limiter/unset/key/a/limit")
			f.loop(every/4, func() error { return lim.Key("a").Do(f.ctx, busy) })
		},
	},
	{
		name: "a holder is asked to release its permit",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "asked", 1)
			p := f.acquire(sem, bounded)
			f.work.Go(func() {
				<-p.StopRequested().Done()
				_ = p.Release(f.ctx)
			})
			require.NoError(f.T, sem.RequestStop(f.ctx, p.Token(), "a test"))
		},
	},
	{
		name: "a leader that stops slowly is asked to step down",
		cause: func(f *fleet) {
			e, err := concurrency.NewElection(f.sessions[0], "asked")
			require.NoError(f.T, err)
			leads := make(chan struct{}, 10)
			f.loop(every, func() error {
				return e.Lead(f.ctx, func(ctx context.Context, _ *concurrency.Permit) error {
					leads <- struct{}{}
					<-ctx.Done()
					f.sleep(2 * every)
					return ctx.Err()
				})
			})
			<-leads
			_, err = e.StepDown(f.ctx, "a test")
			require.NoError(f.T, err)
		},
	},
	{
		name: "the process that leads is not scraped",
		cause: func(f *fleet) {
			s, _ := f.process("unseen", nil)
			f.lead(s, "unseen")
			f.sleep(every)
			f.lead(f.sessions[1], "unseen")
			delete(f.from, "unseen")
		},
	},
	{
		name: "another process releases a permit by its ID",
		cause: func(f *fleet) {
			flow := concurrency.ID("flow")
			f.acquire(f.semaphore(f.sessions[0], "flows", 1), bounded, flow)
			require.NoError(f.T, f.semaphore(f.sessions[1], "flows", 1).ReleaseID(f.ctx, "flow"))
		},
	},
	{
		name: "a process is cut off when its work is done, and returns",
		cause: func(f *fleet) {
			s, c := f.process("back", &concurrency.SessionOptions{TTL: 300 * time.Second})
			sem := f.semaphore(s, "back", 1)
			p := f.acquire(f.semaphore(s, "unreleased", 1), bounded)
			require.NoError(f.T, sem.Do(f.ctx, func(context.Context, *concurrency.Permit) error { c.Cut(); return nil }))
			ctx, cancel := context.WithTimeout(f.ctx, every/2)
			require.ErrorIs(f.T, p.Release(ctx), concurrency.ErrUnconfirmed)
			cancel()
			c.Heal()
		},
	},
	{
		name: "a function of a request fails or panics, and is executed again",
		cause: func(f *fleet) {
			st, n := f.store(f.sessions[0], "again", nil), 0
			f.loop(every/10, func() error {
				return contained(func() error {
					_, err := idempotency.Do(f.ctx, st, key("0"), "x", func(context.Context, *idempotency.Attempt) (int, error) {
						switch n++; n {
						case 1:
							return 0, errors.New("of a test")
						case 2:
							panic("of a test")
						}
						return n, nil
					})
					return err
				})
			})
		},
	},
	{
		name: "a result is too large",
		cause: func(f *fleet) {
			st := f.store(f.sessions[0], "large", &idempotency.Options{MaxResult: 8})
			_, err := idempotency.Do(f.ctx, st, key("0"), "x", func(context.Context, *idempotency.Attempt) (string, error) { return "more than eight", nil })
			require.NoError(f.T, err)
		},
	},
	{
		name: "a condition of a commit is not met",
		cause: func(f *fleet) {
			at, _, err := f.store(f.sessions[0], "conditions", nil).Begin(f.ctx, key("0"), "x")
			require.NoError(f.T, err)
			at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.Version("nothing"), ">", 0)})
			require.ErrorIs(f.T, at.Commit(f.ctx, nil), idempotency.ErrConflict)
			require.NoError(f.T, at.Release(f.ctx))
		},
	},
	{
		name: "records are deleted by hand",
		cause: func(f *fleet) {
			st := f.store(f.sessions[0], "erased", nil)
			do := func() {
				_, err := idempotency.Do(f.ctx, st, key("0"), "x", func(context.Context, *idempotency.Attempt) (int, error) { return 0, nil })
				require.NoError(f.T, err)
			}
			do()
			f.erase("/idempotency/erased/")
			do()
		},
	},
}

// scaledToZero ends all processes of a fleet in order. Its elections are not missed; its jobs are.
var scaledToZero = fault{
	name:  "a fleet is scaled to zero",
	later: true,
	cause: func(f *fleet) {
		f.stop()
		var closed sync.WaitGroup
		for n, s := range f.sessions {
			delete(f.from, fmt.Sprint("process-", n))
			closed.Go(func() {
				ctx, cancel := context.WithTimeout(f.watching, 10*every)
				defer cancel()
				_ = s.Close(ctx)
			})
		}
		closed.Wait()
	},
	fires: []string{"EtcdkitJobGone invoices"},
	may:   []string{"EtcdkitJobGone heartbeat", "EtcdkitJobNotStarted heartbeat", "EtcdkitJobNotStarted invoices"},
}

// byHand are faults of processes and operators, each with the alerts of one name.
var byHand = []fault{
	{
		name:  "an operator evicts a holder",
		cause: func(f *fleet) { f.evict(f.sessions[0], "evicted") },
		fires: []string{"EtcdkitPermitsLost evicted"},
	},
	{
		name: "a process is started again at its address, and loses as many permits",
		prepare: func(f *fleet) {
			s, _ := f.process("again", nil)
			f.evict(s, "again")
			f.ends = append(f.ends, s)
		},
		cause: func(f *fleet) {
			s, _ := f.process("again", nil)
			f.evict(s, "again")
		},
		fires: []string{"EtcdkitPermitsLost again"},
	},
	{
		name: "a request's key is deleted",
		cause: func(f *fleet) {
			p := f.acquire(f.semaphore(f.sessions[0], "deleted", 1), bounded)
			f.erase("/semaphore/deleted/queue/")
			require.ErrorIs(f.T, p.Release(f.ctx), concurrency.ErrLost)
		},
		fires: []string{"EtcdkitPermitsLost deleted"},
	},
	{
		name: "a limiter's request is deleted at its key alone",
		cause: func(f *fleet) {
			lim, err := concurrency.NewKeyedLimiter(f.sessions[0], "alone", 1, &concurrency.KeyedLimiterOptions{Total: 2})
			require.NoError(f.T, err)
			p := f.acquire(lim.Key("a"), bounded)
			for _, key := range f.Keys("/limiter/alone/") {
				if strings.Contains(key, "/queue/") && !strings.Contains(key, "/total/") {
					_, err := f.Client().Delete(f.ctx, key)
					require.NoError(f.T, err)
				}
			}
			require.ErrorIs(f.T, p.Release(f.ctx), concurrency.ErrLost)
		},
		fires: []string{"EtcdkitPermitsLost alone"},
	},
	{
		name: "a leader loses its terms",
		cause: func(f *fleet) {
			f.lead(f.sessions[0], "terms")
			for range 3 {
				f.sleep(2 * every)
				f.erase("/election/terms/queue/")
			}
		},
		fires: []string{"EtcdkitPermitsLost terms"},
	},
	{
		name: "a limit's key cannot be read",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "unreadable", 3)
			require.NoError(f.T, sem.Do(f.ctx, busy))
			_, err := f.Client().Put(f.ctx, f.sessions[0].NamespacePrefix()+"semaphore/unreadable/limit", "\x00")
			require.NoError(f.T, err)
			f.loop(every/4, func() error { return sem.Do(f.ctx, busy) })
		},
		fires: []string{"EtcdkitErrors unreadable", "EtcdkitUnreadableLimit unreadable"},
	},
	{
		name: "work outlasts its MaxHold",
		cause: func(f *fleet) {
			sem := f.semaphore(f.sessions[0], "too-long", 1)
			f.work.Go(func() {
				_ = sem.Do(f.ctx, func(ctx context.Context, _ *concurrency.Permit) error { <-ctx.Done(); return ctx.Err() }, concurrency.MaxHold(time.Second))
			})
		},
		fires: []string{"EtcdkitPermitsLost too-long"},
	},
	{
		name: "a limiter has too many keys",
		cause: func(f *fleet) {
			lim, err := concurrency.NewKeyedLimiter(f.sessions[0], "crowded", 1, &concurrency.KeyedLimiterOptions{MaxKeys: 1})
			require.NoError(f.T, err)
			f.acquire(lim.Key("a"), bounded)
			f.loop(every/20, func() error { _, err := lim.Key("b").TryAcquire(f.ctx); return err })
		},
		fires: []string{"EtcdkitBoundReached crowded"},
	},
	{
		name: "a process is cut off",
		cause: func(f *fleet) {
			s, c := f.process("cut", &concurrency.SessionOptions{TTL: 5 * time.Second, Margin: time.Second})
			f.acquire(f.semaphore(s, "cut", 2), bounded)
			sem := f.semaphore(s, "calls", 2)
			f.loop(every/2, func() error { return sem.Do(f.ctx, busy, concurrency.Wait(every/2)) })
			f.sleep(every / 2)
			c.Cut()
		},
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitPermitsLost cut", "EtcdkitSessionNotRecovered", "EtcdkitUnavailable"},
	},
	{
		name: "the permission of a process is withdrawn", // as etcd denies it: the calls, and the renewals
		cause: func(f *fleet) {
			s, c := f.process("denied", &concurrency.SessionOptions{TTL: 5 * time.Second, Margin: time.Second})
			f.acquire(f.semaphore(s, "denied", 2), bounded)
			sem := f.semaphore(s, "calls-denied", 2)
			f.loop(every/2, func() error { return sem.Do(f.ctx, busy, concurrency.Wait(every/2)) })
			f.sleep(every / 2)
			for _, method := range []string{"", "LeaseKeepAlive"} {
				c.Inject(embedtest.Fault{Method: method, Times: -1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCPermissionDenied})
			}
		},
		fires: []string{"EtcdkitProcessDied", "EtcdkitSessionLost", "EtcdkitPermitsLost denied", "EtcdkitSessionNotRecovered", "EtcdkitUnavailable"},
		may:   []string{"EtcdkitErrors calls-denied"}, // from the denial to the loss of the session, which may be too few calls
	},
	{
		name: "an operator unlocks a run that hangs",
		cause: func(f *fleet) {
			runs := 0
			f.jobOf(f.sessions[0], "unlocked", func(ctx context.Context) error {
				if runs++; runs == 2 {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			l, err := schedlock.New(f.sessions[1], nil)
			require.NoError(f.T, err)
			f.work.Go(func() {
				f.sleep(50 * every)
				_ = l.Unlock(f.ctx, "unlocked", "a test")
			})
		},
		fires: []string{"EtcdkitRunOutlastsPeriod unlocked"},
	},
	{
		name: "a run outlasts AtMost",
		cause: func(f *fleet) {
			runs := 0
			f.jobOf(f.sessions[0], "at-most", func(ctx context.Context) error {
				if runs++; runs == 1 {
					<-ctx.Done()
				}
				return errors.New("of a test")
			}, schedlock.AtMost(time.Second))
		},
		fires: []string{"EtcdkitRunsFailed at-most", "EtcdkitJobUnsuccessful at-most"},
	},
	{
		name: "processes have different settings of a job",
		cause: func(f *fleet) {
			var once sync.Once
			ran := make(chan struct{})
			call := func(s *concurrency.Session, pause time.Duration, fn schedlock.Func, opts ...schedlock.CallOption) {
				l, err := schedlock.New(s, nil)
				require.NoError(f.T, err)
				opts = append(opts, schedlock.Every(2*every)) // several times within the range of the rule
				f.loop(pause, func() error {
					_, err := l.Do(f.ctx, "settings", fn, opts...)
					return err
				})
			}
			call(f.sessions[0], every/5, func(context.Context, *schedlock.Run) error { once.Do(func() { close(ran) }); return nil })
			<-ran // its settings are the stored ones; at most ticks the other comes first
			call(f.sessions[1], every/100, func(context.Context, *schedlock.Run) error { return nil }, schedlock.AtMost(time.Minute))
		},
		fires: []string{"EtcdkitSettingsDiffer settings"},
	},
	{
		name: "the lock of a run is deleted",
		cause: func(f *fleet) {
			running, runs := make(chan struct{}), 0
			f.jobOf(f.sessions[0], "lockless", func(ctx context.Context) error {
				if runs++; runs > 1 {
					return nil
				}
				close(running)
				<-ctx.Done()
				return ctx.Err()
			})
			<-running
			f.erase("/job/lockless/lock")
		},
		fires: []string{"EtcdkitRunsLost lockless", "EtcdkitJobLostRun lockless"},
	},
	{
		name: "a function of a request fails under Refuse",
		cause: func(f *fleet) {
			st := f.store(f.sessions[0], "declined", &idempotency.Options{OnLost: idempotency.Refuse})
			f.loop(every/10, func() error {
				_, err := idempotency.Do(f.ctx, st, key("0"), "x", func(context.Context, *idempotency.Attempt) (int, error) { return 0, errors.New("of a test") })
				return err
			})
		},
		fires: []string{"EtcdkitUnknownRequests declined", "EtcdkitRequestsUnknown declined"},
	},
	{
		name: "a request outlasts MaxExecution",
		cause: func(f *fleet) {
			st := f.store(f.sessions[0], "too-long", &idempotency.Options{MaxExecution: time.Second})
			n := 0
			f.loop(every/4, func() error {
				_, err := idempotency.Do(f.ctx, st, key("0"), "x", func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
					if n++; n == 1 {
						<-ctx.Done()
					}
					return n, ctx.Err()
				})
				return err
			})
		},
		fires: []string{"EtcdkitAttemptsLost too-long"},
	},
	{
		name: "a payload cannot be compared",
		cause: func(f *fleet) {
			f.pay(f.store(f.sessions[0], "payloads", nil), func(int) (string, any) { return "0", make(chan int) })
		},
		fires: []string{"EtcdkitErrors payloads"},
	},
}

// contained calls fn, and contains its panic.
func contained(fn func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it panicked")
		}
	}()
	return fn()
}

// evict ends a permit of a semaphore.
func (f *fleet) evict(s *concurrency.Session, name string) {
	f.T.Helper()
	sem := f.semaphore(s, name, 1)
	require.NoError(f.T, sem.EvictToken(f.ctx, f.acquire(sem, bounded).Token(), "a test"))
}

// erase deletes the keys that contain a text.
func (f *fleet) erase(part string) {
	f.T.Helper()
	all := f.Keys(part)
	require.NotEmpty(f.T, all, part)
	for _, key := range all {
		_, err := f.Client().Delete(f.ctx, key)
		require.NoError(f.T, err)
	}
}
