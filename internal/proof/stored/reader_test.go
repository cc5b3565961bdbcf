package stored

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/internal/record"
	"github.com/etcdkit/etcdkit/schedlock"
	"github.com/etcdkit/etcdkit/schedlock/crontab"
)

// by drops what a decoder returns, but for whether it can read a value of the keys that have a part.
func by[R any](part string, decode func([]byte) (R, bool)) decoder {
	return decoder{part, reflect.TypeFor[R](), func(b []byte) bool { _, ok := decode(b); return ok }}
}

type decoder struct {
	part  string
	of    reflect.Type
	reads func([]byte) bool
}

// decoders are those of all kinds of values, by what is in a key: the first one counts.
var decoders = []decoder{
	by("/notice/", record.DecodeNotice), by("/stop/", record.DecodeNotice), by("session/", record.DecodeSession), by("sharing/", record.DecodeSession),
	by("request-id/", record.DecodeID), by("bucket/", record.DecodeTokens), by("/queue/", record.DecodeRequest),
	by("/limit", record.DecodeLimit), by("/default", record.DecodeLimit),
	by("/run/", record.DecodeRun), by("/lock", record.DecodeLock), by("/cooldown", record.DecodeLock), by("/settings", record.DecodeSettings),
	by("/pause", record.DecodePause), by("/operation", record.DecodeOperated), by("/run-request", record.DecodeRequestedRun),
	by("/plan", record.DecodePlan), by("/reported-loss", record.DecodeReported), by("jobs-of/", record.DecodeUser), by("clock/", record.DecodeClock),
	by("/record/", record.DecodeAttempt), by("change/", record.DecodeChange),
}

// decodes shows that each record has a decoder that reads it, also those that are gone soon, and that all decoders have one.
func decodes(t *testing.T, all []written, edit func(w written) string) {
	t.Helper()
	used := map[string]bool{}
	for _, w := range all {
		value := edit(w)
		if !strings.HasPrefix(value, "{") {
			continue // a part, a timer or a floor
		}
		at := slices.IndexFunc(decoders, func(d decoder) bool { return strings.Contains(w.Key, d.part) })
		require.GreaterOrEqual(t, at, 0, w.Key)
		require.True(t, decoders[at].reads([]byte(value)), "%s: %s", w.Key, value)
		used[decoders[at].part] = true
	}
	require.Len(t, used, len(decoders))
}

// understands shows that a program knows all that the full run has left.
func understands(t *testing.T, r reader) {
	t.Helper()
	ctx := testkit.Context(t)
	charge, err := concurrency.NewSemaphore(r.sess, "charge", 2, nil)
	require.NoError(t, err)
	st, err := charge.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 0}, []int{st.Limit, st.Used, len(st.Waiters)})
	require.Equal(t, []string{"web-1", "order-17", "card"}, []string{st.Holders[0].Owner, st.Holders[0].ID, st.Holders[0].Note})
	require.Equal(t, time.Hour, st.Holders[0].MaxHold)
	_, err = charge.Acquire(ctx, concurrency.ID("order-17"))
	require.ErrorIs(t, err, concurrency.ErrHeld)
	countsAgainstLimits(t, r)
	el, err := concurrency.NewElection(r.sess, "ingest")
	require.NoError(t, err)
	leader, err := el.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"web-1", "10.0.0.7:8080"}, []string{leader.Owner, leader.Note})
	mail, err := concurrency.NewRateLimiter(r.sess, "mail", concurrency.Rate{PerSecond: 50, Burst: 5}, nil)
	require.NoError(t, err)
	rate, err := mail.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, concurrency.Rate{PerSecond: 50, Burst: 5}, rate.Rate)
	require.Equal(t, "web-1", rate.Holders[0].Owner)
	slow, err := concurrency.NewRateLimiter(r.sess, "seldom", concurrency.Rate{PerSecond: 1e-4, Burst: 1}, nil)
	require.NoError(t, err)
	r.freeShare(t)
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var exceeded *concurrency.RateExceededError
	require.ErrorAs(t, slow.Wait(within), &exceeded, "its one token was taken")
	require.Greater(t, exceeded.RetryAfter, time.Hour)
	understandsJobs(t, r)
	understandsRequests(t, r)
}

// countsAgainstLimits shows that no permit is granted beside those that are held.
func countsAgainstLimits(t *testing.T, r reader) {
	t.Helper()
	ctx := testkit.Context(t)
	for name, limit := range map[string]int{"charge": 2, "heavy": 5} {
		sem, err := concurrency.NewSemaphore(r.sess, name, limit, nil)
		require.NoError(t, err)
		_, err = sem.TryAcquire(ctx, concurrency.Weight(2))
		require.ErrorIs(t, err, concurrency.ErrFull, name)
	}
	mu, err := concurrency.NewMutex(r.sess, "migrate")
	require.NoError(t, err)
	_, err = mu.TryLock(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	lim, err := concurrency.NewKeyedLimiter(r.sess, "api", 2, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	_, err = lim.Key("tenant-7").TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull)
	total, err := lim.Total().Status(ctx)
	require.NoError(t, err)
	require.Equal(t, 3, total.Used)
}

func understandsJobs(t *testing.T, r reader) {
	t.Helper()
	ctx := testkit.Context(t)
	lk := lockerOf(t, r)
	st, err := lk.Status(ctx, "invoices")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunActive, st.Last.State)
	require.Equal(t, "AtMost 1h0m0s, AtLeast 0s, Retries 0", st.Settings)
	records, err := lk.History(ctx, "invoices")
	require.NoError(t, err)
	require.Equal(t, []any{friday, schedlock.RunActive, "web-1"}, []any{records[0].Tick.UTC(), records[0].State, records[0].Owner})
	require.Equal(t, schedlock.RunDone, records[1].State)
	st, err = lk.Status(ctx, "sweep")
	require.NoError(t, err)
	require.Equal(t, []string{"operator", "maintenance"}, []string{st.Paused.By, st.Paused.Reason})
	require.True(t, st.CoolingDown)
	records, err = lk.History(ctx, "nightly")
	require.NoError(t, err)
	require.Equal(t, []schedlock.State{schedlock.RunDone, schedlock.RunLost}, []schedlock.State{records[0].State, records[1].State})
	st, err = lk.Status(ctx, "reports")
	require.NoError(t, err)
	require.Equal(t, []string{"0 9 * * *", "UTC"}, []string{st.Plan.Text, st.Plan.Zone})
	require.True(t, st.Plan.Live, "a live process has it")
	startsNothing(t, lk)
}

// startsNothing shows that no tick starts again, and no job that is active or paused.
func startsNothing(t *testing.T, lk *schedlock.Locker) {
	t.Helper()
	for job, want := range map[string][]schedlock.Outcome{
		"invoices": {schedlock.Claimed, schedlock.StillRunning}, "sweep": {schedlock.Claimed, schedlock.Paused}, "nightly": {schedlock.Claimed},
	} {
		for n, out := range want {
			res, err := lk.Do(testkit.Context(t), job, func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday.Add(time.Duration(n)*time.Minute)))
			require.NoError(t, err, job)
			require.Equal(t, out, res.Outcome, "%s, tick %d", job, n)
		}
	}
}

func lockerOf(t *testing.T, r reader) *schedlock.Locker {
	t.Helper()
	lk, err := schedlock.New(r.sess, &schedlock.Options{Now: func() time.Time { return friday.Add(time.Hour) }})
	require.NoError(t, err)
	return lk
}

func understandsRequests(t *testing.T, r reader) {
	t.Helper()
	ctx := testkit.Context(t)
	st, err := idempotency.NewStore(r.sess, "orders", nil)
	require.NoError(t, err)
	for name, size := range map[string]int{"K-1": 10, "K-long": 300 << 10} {
		_, out, err := st.Begin(ctx, keyOf(name), "payload")
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("r", size), string(out.Value))
	}
	_, _, err = st.Begin(ctx, keyOf("K-1"), "another")
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	_, _, err = st.Begin(ctx, keyOf("K-works"), "payload", idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	_, _, err = st.Begin(ctx, keyOf("K-lost"), "payload")
	require.ErrorIs(t, err, idempotency.ErrUnknown)
	_, out, err := st.Begin(ctx, keyOf("K-failed"), "payload")
	require.NoError(t, err)
	require.Equal(t, "card refused", out.Failure)
	rec, _, err := st.Get(ctx, st.Ref(keyOf("K-works")))
	require.NoError(t, err)
	require.Equal(t, []string{"at the bank", "web-1"}, []string{rec.Note, rec.Owner})
}

// unchanged shows that nothing of what was stored was replaced or removed.
func (r reader) unchanged(t *testing.T) {
	t.Helper()
	is := r.f.Values("")
	for key, value := range r.put {
		require.Equal(t, value, is[r.sess.NamespacePrefix()+key], key)
	}
}

// refuses shows that an error names a key and the version.
func (r reader) refuses(t *testing.T, err error, key string) {
	t.Helper()
	why, ok := errorAs[record.UnreadableError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, record.UnreadableError{Key: r.sess.NamespacePrefix() + key, Version: 2}, why)
	require.ErrorContains(t, err, "version 2")
}

// A196: values of a later version are not read. What their keys say counts; what needs the value fails, with key and version, and
// replaces nothing.
func TestLaterVersionsAreRefused(t *testing.T) {
	t.Parallel()
	r := reads(t, golden(t, "0.1.0"), OfVersion2)
	ctx := testkit.Context(t)
	charge, err := concurrency.NewSemaphore(r.sess, "charge", 2, nil)
	require.NoError(t, err)
	_, err = charge.TryAcquire(ctx)
	r.refuses(t, err, "semaphore/charge/limit")
	_, err = charge.Acquire(ctx, concurrency.Wait(time.Minute))
	r.refuses(t, err, "semaphore/charge/limit")
	r.refuses(t, charge.SetLimit(ctx, 5), "semaphore/charge/limit")
	lim, err := concurrency.NewKeyedLimiter(r.sess, "api", 2, &concurrency.KeyedLimiterOptions{Total: 9})
	require.NoError(t, err)
	_, err = lim.Key("tenant-8").TryAcquire(ctx)
	r.refuses(t, err, "limiter/api/default")
	for name, rate := range map[string]concurrency.Rate{"mail": {PerSecond: 50, Burst: 5}, "seldom": {PerSecond: 1e-4, Burst: 1}} {
		l, err := concurrency.NewRateLimiter(r.sess, name, rate, nil)
		require.NoError(t, err)
		r.refuses(t, l.Wait(ctx), "rate/"+name+"/limit")
	}

	lk := lockerOf(t, r)
	startsNothing(t, lk)
	short, cancel := context.WithTimeout(ctx, time.Second) // the process with these settings may end meanwhile
	defer cancel()
	_, err = lk.Do(short, "nightly", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday.Add(time.Minute)))
	require.ErrorIs(t, err, schedlock.ErrSettings)
	require.ErrorContains(t, err, "job/nightly/settings is of a later release: it has version 2")
	keepsPlan(t, r, lk)
	r.refuses(t, lk.Pause(ctx, "sweep", "again"), "job/sweep/operation")
	r.refuses(t, lk.Resume(ctx, "sweep"), "job/sweep/operation")
	r.refuses(t, lk.Unlock(ctx, "invoices", "stuck"), "job/invoices/run/2026-11-27T08:00:00.000Z")
	require.ErrorIs(t, lk.Forget(ctx, "reports"), schedlock.ErrInUse)
	// A393: the records of runs were left out, as if the job had never run.
	job, err := lk.Status(ctx, "nightly")
	require.NoError(t, err)
	require.Equal(t, schedlock.RunUnreadable, job.Last.State)
	runs, err := lk.History(ctx, "nightly")
	require.NoError(t, err)
	require.Len(t, runs, 2)
	require.Contains(t, runs[0].Error, "job/nightly/run/2026-11-27T08:00:00.000Z is of a later release")

	st, err := idempotency.NewStore(r.sess, "orders", nil)
	require.NoError(t, err)
	for _, name := range []string{"K-1", "K-long", "K-works", "K-lost", "K-failed"} {
		_, _, err := st.Begin(ctx, keyOf(name), "payload")
		require.ErrorIs(t, err, idempotency.ErrUnreadable)
		r.refuses(t, err, "idempotency/orders/record/"+string(st.Ref(keyOf(name))))
		err = st.Resolve(ctx, st.Ref(keyOf(name)), idempotency.NotDone())
		r.refuses(t, err, "idempotency/orders/record/"+string(st.Ref(keyOf(name))))
		err = st.Delete(ctx, st.Ref(keyOf(name)))
		require.ErrorIs(t, err, idempotency.ErrAlive, "it may be in progress")
		r.refuses(t, err, "idempotency/orders/record/"+string(st.Ref(keyOf(name))))
	}
	r.unchanged(t)
	require.NoError(t, st.Delete(ctx, st.Ref(keyOf("K-works")), idempotency.EvenIfAlive()))
}

// A391: the process of a lost attempt may have the session of a later version that is on another lease. NotDone and Delete
// were done beside it.
func TestLaterSessionMayBeOfALostAttempt(t *testing.T) {
	t.Parallel()
	all := golden(t, "0.1.0")
	const next = 0x1234567 // the lease that the session has taken
	for i, w := range all {
		if w.Live && strings.HasSuffix(w.Key, "/alive") {
			all[i].Key, all[i].Lease, all[i].Value = fmt.Sprintf("session/%016x/alive", next), next, OfVersion2(w)
			break
		}
	}
	r, ctx := reads(t, all, asStored), testkit.Context(t)
	st, err := idempotency.NewStore(r.sess, "orders", nil)
	require.NoError(t, err)
	lost := st.Ref(keyOf("K-lost"))
	rec, _, err := st.Get(ctx, lost)
	require.NoError(t, err)
	require.Equal(t, []any{idempotency.Unknown, true}, []any{rec.State, rec.Alive})
	for _, err := range []error{st.Resolve(ctx, lost, idempotency.NotDone()), st.Delete(ctx, lost)} {
		require.ErrorIs(t, err, idempotency.ErrAlive)
		r.refuses(t, err, fmt.Sprintf("session/%016x/alive", next))
	}
	r.unchanged(t)
	require.NoError(t, st.Resolve(ctx, lost, idempotency.NotDone(), idempotency.EvenIfAlive()))
}

// keepsPlan has a process plan a job, and claim a tick of it, whose plan is of a later version: see unchanged.
func keepsPlan(t *testing.T, r reader, lk *schedlock.Locker) {
	t.Helper()
	ctx := testkit.Context(t)
	planned := crontab.MustParse("0 9 * * *", time.UTC)
	st, err := lk.Status(ctx, "reports")
	require.NoError(t, err)
	require.Nil(t, st.Plan)
	job, err := lk.Job("reports", planned, func(context.Context, *schedlock.Run) error { return nil })
	require.NoError(t, err)
	job.Next(friday)
	require.Eventually(t, func() bool { return len(r.f.Keys(fmt.Sprintf("/jobs-of/%016x/", int64(r.sess.Lease())))) > 0 }, testkit.Soon, 10*time.Millisecond)
	res, err := lk.Do(ctx, "reports", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(friday), schedlock.Planned(planned, time.Hour))
	require.NoError(t, err)
	require.Equal(t, schedlock.Ran, res.Outcome)
}

// A196: requests, sessions and the tokens of a rate of a later version count as they are.
func TestLaterRequestsCount(t *testing.T) {
	t.Parallel()
	r := reads(t, golden(t, "0.1.0"), func(w written) string {
		if strings.HasSuffix(w.Key, "/limit") || strings.HasSuffix(w.Key, "/default") {
			return w.Value
		}
		return OfVersion2(w)
	})
	ctx := testkit.Context(t)
	countsAgainstLimits(t, r)
	charge, err := concurrency.NewSemaphore(r.sess, "charge", 2, nil)
	require.NoError(t, err)
	_, err = charge.Acquire(ctx, concurrency.ID("order-17"))
	r.refuses(t, err, "request-id/semaphore/charge/order-17")
	el, err := concurrency.NewElection(r.sess, "ingest")
	require.NoError(t, err)
	leader, err := el.Leader(ctx)
	require.NoError(t, err)
	require.True(t, leader.Elected())
	require.Empty(t, leader.Owner)
	st, err := charge.Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{2, ""}, []any{st.Used, st.Holders[0].Owner})
	r.freeShare(t)
	slow, err := concurrency.NewRateLimiter(r.sess, "seldom", concurrency.Rate{PerSecond: 1e-4, Burst: 1}, nil)
	require.NoError(t, err)
	within, cancel := context.WithTimeout(ctx, testkit.Soon)
	defer cancel()
	r.refuses(t, slow.Wait(within), "bucket/seldom/left")
}

// A196: a notice of a later version ends the request that the name of its key has, and says why its reason is not known.
func TestLaterNoticeEndsItsRequest(t *testing.T) {
	t.Parallel()
	f, ctx := own(t), testkit.Context(t)
	sess := f.SessionOn(f.Client(), named("web-9"))
	sem, err := concurrency.NewSemaphore(sess, "a", 2, nil)
	require.NoError(t, err)
	p, err := sem.Acquire(ctx)
	require.NoError(t, err)
	stays, err := sem.Acquire(ctx)
	require.NoError(t, err)
	space, err := keyspace.New(f.Root, "test")
	require.NoError(t, err)
	request := f.Keys("queue/")[0]
	notice := space.Session(int64(sess.Lease())).Notice(p.Token(), request)
	_, err = f.Client().Txn(ctx).Then(clientv3.OpDelete(request), clientv3.OpPut(notice, `{"v":2,"cause":{"code":7}}`, clientv3.WithLease(sess.Lease()))).Commit()
	require.NoError(t, err)
	testkit.Closed(t, p.Context().Done(), "the notice arrives")
	require.ErrorIs(t, p.Err(), concurrency.ErrEvicted)
	require.ErrorContains(t, p.Err(), "notice/")
	require.ErrorContains(t, p.Err(), "version 2")
	require.NoError(t, stays.Err())
}

func errorAs[E error](err error) (E, bool) { return errors.AsType[E](err) }

// freeShare removes the one share of the slow rate, if the full run has left it.
func (r reader) freeShare(t *testing.T) {
	t.Helper()
	_, err := r.f.Client().Delete(testkit.Context(t), r.sess.NamespacePrefix()+"rate/seldom/queue/", clientv3.WithPrefix())
	require.NoError(t, err)
}
