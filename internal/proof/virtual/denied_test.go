package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	leasing "github.com/etcdkit/etcdkit/internal/lease"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// refusals are how etcd refuses a client: its role was changed, its password, or authentication was enabled.
var refusals = map[string]error{
	"permission": rpctypes.ErrGRPCPermissionDenied,
	"password":   rpctypes.ErrGRPCAuthFailed,
	"no user":    rpctypes.ErrGRPCUserEmpty,
}

// refuse has etcd refuse all requests of a process, or those that pick chooses, until allow is called, and
// counts them.
func (d *desk) refuse(err error, pick func(etcdfake.Message) bool) (refused *atomic.Int64, allow func()) {
	refused = new(atomic.Int64)
	d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
		if m.Response || pick != nil && !pick(m) {
			return etcdfake.Fault{}
		}
		refused.Add(1)
		return etcdfake.Fault{Err: err, DropRequest: true}
	})
	return refused, func() { d.client.Inject(nil) }
}

// reads reports whether a message asks for keys, or for a watch.
func reads(m etcdfake.Message) bool {
	w, ok := m.Body.(*etcdserverpb.WatchRequest)
	return m.Method == "Range" || ok && w.GetCreateRequest() != nil
}

// A113: etcd refuses everything for some seconds. Permits, runs and attempts live on, and so does what waits:
// it ends as if nothing had been.
func TestDeniedForAMoment(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals {
		for _, before := range []time.Duration{10 * time.Millisecond, 2500 * time.Millisecond, 4990 * time.Millisecond} { // since the last renewal
			t.Run(fmt.Sprint(name, " after ", before), func(t *testing.T) {
				t.Parallel()
				bubble(t, 2, func(t *testing.T, on []*desk) {
					holds, waits := on[0], on[1]
					p := holds.acquire()
					at := waits.waiter()
					begun, done := doing(t.Context(), holds.locker(), true, t.Context().Done(), fireTime(1))
					r := came(t, begun, "the run starts")
					attempt := started(t, holds.storeOf(idempotency.Options{}), order("1"))
					leases := []clientv3.LeaseID{holds.session.Lease(), waits.session.Lease()}
					time.Sleep(time.Until(holds.renewed().Add(renews + before)))

					_, allow := holds.refuse(refusal, nil)
					_, allowToo := waits.refuse(refusal, nil)
					time.Sleep(4 * time.Second)
					allow()
					allowToo()
					time.Sleep(2 * ttl)
					require.Equal(t, leases, []clientv3.LeaseID{holds.session.Lease(), waits.session.Lease()})
					require.NoError(t, p.Err())
					require.NoError(t, r.Err())
					require.NoError(t, attempt.Err())
					require.Empty(t, done)
					require.NoError(t, attempt.Commit(t.Context(), nil))
					require.Empty(t, at)
					require.NoError(t, p.Release(t.Context()))
					came(t, at, "the waiter gets in")
				})
			})
		}
	}
}

// A114: what etcd refuses longer than the lease may be trusted ends with it, and the reason is the refusal. The
// session has it logged at once, each minute, and when it is over; it takes a new lease by itself, and what
// waits continues.
func TestDeniedForLong(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, on []*desk) {
				d, core, logs := on[0], zapcore.Core(nil), (*observer.ObservedLogs)(nil)
				core, logs = observer.New(zap.InfoLevel)
				causes := make(chan error, 1)
				d.open(concurrency.SessionOptions{Logger: zap.New(core), Hooks: testkit.Trace{SessionLost: func(_ clientv3.LeaseID, cause error) { causes <- cause }}.Hooks()})
				p := on[1].acquire()
				at := d.waiter()
				mu, err := mutexOf(d).Lock(t.Context())
				require.NoError(t, err)
				time.Sleep(time.Until(d.renewed().Add(renews + time.Second)))
				_, allow := d.refuse(refusal, nil)
				ended(t, mu)
				require.ErrorIs(t, mu.Err(), concurrency.ErrLost)
				lost := came(t, causes, "the hook is called")
				require.ErrorIs(t, lost, leasing.ErrDenied)
				require.ErrorIs(t, lost, leasing.ErrDeadline)
				require.Contains(t, mu.Err().Error(), refusal.Error()[strings.Index(refusal.Error(), "etcdserver"):])

				time.Sleep(10 * time.Minute)
				short := within(t, time.Second)
				_, err = mutexOf(d).Lock(short)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Contains(t, err.Error(), "etcd refuses the session")
				require.NotContains(t, err.Error(), "no answer")
				said := logs.FilterMessage("etcd refuses what the session needs; that is repeated").Len()
				require.InDelta(t, 9, said, 3, "once, and at the first try after each minute: tries are up to 45 s apart")
				allow()
				time.Sleep(50 * time.Second)
				require.NotZero(t, d.session.Lease())
				require.NotZero(t, logs.FilterMessage("etcd allows again what it had refused the session").Len())
				require.NoError(t, p.Release(t.Context()))
				came(t, at, "the waiter queues anew, and gets in")
			})
		})
	}
}

// A115: a session that renews its lease and may not read its own keys learns of no eviction. It is lost after
// one and a half TTLs, not before, and not if it may read again by then.
func TestBlind(t *testing.T) {
	t.Parallel()
	for name, lasts := range map[string]time.Duration{"for good": time.Hour, "for a TTL": ttl} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				p := d.acquire()
				time.Sleep(time.Second) // the own range was listed for the first time
				first := make(chan time.Time, 1)
				_, allow := d.refuse(rpctypes.ErrGRPCPermissionDenied, func(m etcdfake.Message) bool {
					if !reads(m) {
						return false
					}
					select {
					case first <- time.Now():
					default:
					}
					return true
				})
				denied := came(t, first, "the own range is listed")
				time.AfterFunc(lasts, allow)
				if lasts < time.Hour {
					time.Sleep(10 * ttl)
					require.NoError(t, p.Err())
					return
				}
				ended(t, p)
				require.Equal(t, denied.Add(ttl*3/2), time.Now())
				require.ErrorContains(t, p.Err(), "learns of evictions")
				require.ErrorContains(t, p.Err(), "permission denied")
				synctest.Wait()
				require.NotEmpty(t, d.requests(), "what works under the permit has the margin to stop")
			})
		})
	}
}

// A115: lists are denied, and the watch that is open brings what happens: it is not replaced by one that
// would be denied, so an eviction is noticed at once.
func TestDeniedListsKeepTheWatch(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		sem := d.semaphore(1)
		p, err := sem.Acquire(t.Context(), concurrency.ID("i"))
		require.NoError(t, err)
		time.Sleep(time.Second) // the own range was listed for the first time
		refused, _ := d.refuse(rpctypes.ErrGRPCPermissionDenied, reads)
		for refused.Load() == 0 { // until the own range is listed again
			time.Sleep(time.Second)
		}
		require.NoError(t, p.Err())
		require.NoError(t, on[1].semaphore(1).Evict(t.Context(), "i", "why"))
		time.Sleep(time.Second)
		require.ErrorIs(t, p.Err(), concurrency.ErrEvicted)
	})
}

// A116: the password is changed under a process with 100 permits, 50 waiting calls, 20 jobs in progress and 20
// attempts. All of them repeat what was refused, and what is refused makes etcd's client log in. In half a
// minute that is a login about every second while a lease is trusted, and then one at a time, ever more seldom.
func TestNoLoginStorm(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d, store, jobs := on[0], on[0].storeOf(idempotency.Options{MaxPerScope: -1}), on[0].locker()
		blocker := on[1].acquire()
		for range 50 {
			d.waiter()
		}
		var permits []*concurrency.Permit
		for i := range 100 {
			sem, err := concurrency.NewSemaphore(d.session, fmt.Sprint("s", i%30), 100, nil)
			require.NoError(t, err)
			permits = append(permits, d.hold1(sem))
		}
		var attempts []*idempotency.Attempt
		for i := range 20 {
			attempts = append(attempts, started(t, store, order(fmt.Sprint(i))))
		}
		for i := range 20 {
			begun, end := make(chan struct{}), time.Now().Add(2*ttl)
			go func() {
				_, _ = jobs.Do(t.Context(), fmt.Sprint("job", i), func(context.Context, *schedlock.Run) error {
					close(begun)
					time.Sleep(time.Until(end))
					return nil
				}, fireTime(1))
			}()
			came(t, begun, "the job runs")
		}
		time.Sleep(time.Until(d.renewed().Add(renews + time.Millisecond)))

		refused, allow := d.refuse(rpctypes.ErrGRPCAuthFailed, logsIn)
		var done sync.WaitGroup
		for i, a := range attempts { // all work ends while it is refused
			done.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				_ = a.Commit(within(t, time.Second), nil)
			})
		}
		for i, p := range permits {
			done.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				_ = p.Release(within(t, time.Second))
			})
		}
		time.Sleep(12 * time.Second)
		trusted := refused.Load()
		time.Sleep(18 * time.Second)
		t.Logf("%d logins in 12 s, %d in 30 s", trusted, refused.Load())
		require.Less(t, trusted, int64(70))
		require.Less(t, refused.Load()-trusted, int64(15))
		allow()
		done.Wait()
		require.NoError(t, blocker.Err())
		time.Sleep(time.Minute)
		require.NotZero(t, d.session.Lease())
	})
}

// logsIn reports whether etcd's client logs in for a message whose token is not accepted.
func logsIn(m etcdfake.Message) bool {
	w, ok := m.Body.(*etcdserverpb.WatchRequest)
	return !ok || w.GetCreateRequest() != nil
}

// A117: a new lease is granted, and its presence key is denied. The lease is kept and the key tried again: each
// try costs etcd one Raft entry in place of two.
func TestDeniedPresenceKey(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		var grants, tries atomic.Int64
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			switch {
			case m.Response:
			case m.Method == "LeaseGrant":
				grants.Add(1)
			case m.Method == "Txn":
				tries.Add(1)
				return etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied, DropRequest: true}
			}
			return etcdfake.Fault{}
		})
		require.True(t, d.server.Expire(d.session.Lease()))
		time.Sleep(30 * time.Minute)
		require.EqualValues(t, 1, grants.Load())
		require.InDelta(t, 60, tries.Load(), 30, "about each half minute")
		require.Zero(t, d.session.Lease())
		d.client.Inject(nil)
		time.Sleep(time.Minute)
		require.NotZero(t, d.session.Lease())
		d.acquire()
	})
}

// A118: what etcd denies is no verdict on what was attached to the outcome. The outcome is written again while the
// lease is trusted, by the caller or, when its ctx has ended, in the background; a recovery point likewise. It
// was ErrInvalid, the attempt was lost, and the request ran again.
func TestDeniedOutcome(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d, store := on[0], on[0].storeOf(idempotency.Options{})
				count := func() int { return len(d.server.Keys(root + "ledger/")) }
				for i, wait := range []time.Duration{time.Minute, time.Second} {
					k := order(fmt.Sprint(i))
					at := started(t, store, k, idempotency.OnLost(idempotency.Refuse))
					time.Sleep(time.Until(d.renewed().Add(renews + time.Millisecond)))
					_, allow := d.refuse(refusal, nil)
					time.AfterFunc(3*time.Second, allow)
					begun := time.Now()
					if i == 0 {
						_, err := idempotency.Step(at, "charge", func(context.Context) (int, error) { return 1, nil })
						require.NoError(t, err)
						require.InDelta(t, 5.5, time.Since(begun).Seconds(), 2.5, "soon after it is allowed")
						time.Sleep(time.Until(d.renewed().Add(renews + time.Millisecond)))
						_, allow := d.refuse(refusal, nil)
						time.AfterFunc(7*time.Second, allow) // longer than what is attached may be denied
					}
					at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(root+"ledger/"+fmt.Sprint(i)), "=", 0)}, clientv3.OpPut(root+"ledger/"+fmt.Sprint(i), "1"))
					err := at.Commit(within(t, wait), []byte("1"))
					if wait > 3*time.Second {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, idempotency.ErrNotRecorded)
						require.NotErrorIs(t, err, idempotency.ErrInvalid)
						require.Equal(t, i, count())
						time.Sleep(time.Minute)
					}
					require.Equal(t, i+1, count())
					none, out, err := store.Begin(t.Context(), k, "payload")
					require.NoError(t, err)
					require.Nil(t, none)
					require.NotNil(t, out, "it is recorded")
				}
			})
		})
	}
}

// ledgers reports whether a message concerns what the tests attach to an outcome.
func ledgers(m etcdfake.Message) bool {
	txn, ok := m.Body.(*etcdserverpb.TxnRequest)
	return ok && strings.Contains(txn.String(), "ledger/")
}

// A118: only what is attached is denied. Back within three seconds, it is written; otherwise Commit says after five
// seconds that the role has no permission for it, and the attempt continues. The time in which etcd denies the
// store's own keys as well does not count.
func TestDeniedAttachment(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, store := on[0], on[0].storeOf(idempotency.Options{})
		for i, tt := range []struct{ all, attached time.Duration }{{0, 3 * time.Second}, {6 * time.Second, 3 * time.Second}, {0, time.Hour}} {
			at := started(t, store, order(fmt.Sprint(i)), idempotency.OnLost(idempotency.Refuse))
			at.Attach(nil, clientv3.OpPut(root+"ledger/"+fmt.Sprint(i), "1"))
			time.Sleep(time.Until(d.renewed().Add(renews + time.Millisecond)))
			begun := time.Now()
			d.refuse(rpctypes.ErrGRPCPermissionDenied, func(m etcdfake.Message) bool {
				passed := time.Since(begun)
				return passed < tt.all || passed < tt.all+tt.attached && ledgers(m)
			})
			err := at.Commit(t.Context(), []byte("1"))
			if tt.attached < time.Minute {
				require.NoError(t, err)
				require.Len(t, d.server.Keys(root+"ledger/"), i+1)
				continue
			}
			require.ErrorIs(t, err, idempotency.ErrInvalid)
			require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
			require.InDelta(t, 6, time.Since(begun).Seconds(), 1.5)
			require.NoError(t, at.Commit(t.Context(), []byte("1")), "without what was attached")
		}
	})
}

// A118: under Do no caller is left that could decide when the verdict comes, so the attempt is lost then, and neither
// duplicates nor Close wait for it.
func TestDeniedAttachmentUnderDo(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, store := on[0], on[0].storeOf(idempotency.Options{})
		d.refuse(rpctypes.ErrGRPCPermissionDenied, ledgers)
		_, err := idempotency.Do(t.Context(), store, order("1"), "payload", func(_ context.Context, at *idempotency.Attempt) (int, error) {
			at.Attach(nil, clientv3.OpPut(root+"ledger/1", "1"))
			return 1, nil
		}, idempotency.OnLost(idempotency.Refuse))
		require.ErrorIs(t, err, idempotency.ErrNotRecorded)
		require.ErrorContains(t, err, "no permission for what is attached")
		require.NotContains(t, err.Error(), "grant-permission", "the role has what the store needs")
		time.Sleep(10 * time.Second)
		_, _, err = store.Begin(t.Context(), order("1"), "payload", idempotency.OnLost(idempotency.Refuse), idempotency.Wait(0))
		var unknown *idempotency.UnknownError
		require.ErrorAs(t, err, &unknown)
		begun := time.Now()
		require.NoError(t, d.session.Close(t.Context()))
		require.Less(t, time.Since(begun), time.Second)
	})
}

// A144: the first copy of an outcome is on its way when the second is denied and the third finds that a condition is
// not met. It takes no effect after that, whatever becomes of the condition: Commit has said so.
func TestConflictAfterADenial(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d, store := on[0], on[0].storeOf(idempotency.Options{})
		at := started(t, store, order("1"), idempotency.OnLost(idempotency.Refuse))
		at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(root+"open"), ">", 0)}, clientv3.OpPut(root+"ledger/1", "1"))
		var tries atomic.Int64
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if m.Response || !ledgers(m) {
				return etcdfake.Fault{}
			}
			switch tries.Add(1) {
			case 1:
				return etcdfake.Fault{RequestDelay: 10 * time.Second}
			case 2:
				return etcdfake.Fault{Err: rpctypes.ErrGRPCPermissionDenied, DropRequest: true}
			}
			return etcdfake.Fault{}
		})
		require.ErrorIs(t, at.Commit(t.Context(), []byte("1")), idempotency.ErrConflict)
		_, err := d.client.Put(t.Context(), root+"open", "")
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.GreaterOrEqual(t, tries.Load(), int64(3))
		require.Empty(t, d.server.Keys(root+"ledger/"), "the late copy has taken no effect")
		require.NoError(t, at.Commit(t.Context(), []byte("2")))
	})
}
