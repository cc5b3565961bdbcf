package virtual

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/schedlock"
)

// place is one of two clusters, with what moves between them as a program with AdoptLimit has it.
type place struct {
	cluster *embedtest.Cluster
	sem     *concurrency.Semaphore
	keyed   *concurrency.KeyedLimiter
	rate    *concurrency.RateLimiter
	jobs    *schedlock.Locker
	store   *idempotency.Store
}

func placeOf(t *testing.T) (p place) {
	t.Helper()
	p.cluster = embedtest.Start(t, nil)
	if p.cluster.External() {
		t.Skip("names move between two clusters, and EMBEDTEST_ENDPOINTS is one")
	}
	sess, err := concurrency.NewSession(t.Context(), p.cluster.Client(), "payments", nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sess.Close(t.Context()) }) // it is over: a test that failed leaves permits
	p.sem, err = concurrency.NewSemaphore(sess, "charge", 10, &concurrency.SemaphoreOptions{AdoptLimit: true})
	require.NoError(t, err)
	p.keyed, err = concurrency.NewKeyedLimiter(sess, "api", 5, &concurrency.KeyedLimiterOptions{Total: 20, AdoptLimit: true})
	require.NoError(t, err)
	p.rate, err = concurrency.NewRateLimiter(sess, "mail", concurrency.Rate{PerSecond: 50, Burst: 5}, &concurrency.RateLimiterOptions{AdoptRate: true})
	require.NoError(t, err)
	p.jobs, err = schedlock.New(sess, &schedlock.Options{Now: func() time.Time { return movedAt.Add(3 * time.Hour) }})
	require.NoError(t, err)
	p.store, err = idempotency.NewStore(sess, "orders", nil)
	require.NoError(t, err)
	return p
}

var (
	movedAt = time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	moving  = []string{"invoices", "sweep"}
)

// limits is what operators have stored for the names that move.
type limits struct {
	sem, deflt, key, total int
	rate                   concurrency.Rate
	paused                 map[string]string // reason by job
	revision               int64
}

// read is the first step of the page.
func (p place) read(t *testing.T) (l limits) {
	t.Helper()
	of := func(s *concurrency.Semaphore) int {
		st, err := s.Status(t.Context())
		require.NoError(t, err)
		return st.Limit
	}
	l = limits{sem: of(p.sem), deflt: of(p.keyed.Key("any")), total: of(p.keyed.Total()), paused: map[string]string{}}
	for k, err := range p.keyed.Keys(t.Context()) {
		require.NoError(t, err)
		if k.Stored {
			require.Equal(t, "acme", k.Key)
			l.key = k.Limit
		}
	}
	st, err := p.rate.Status(t.Context())
	require.NoError(t, err)
	l.rate = st.Rate
	for _, job := range moving {
		st, err := p.jobs.Status(t.Context(), job)
		require.NoError(t, err)
		if st.Paused != nil {
			l.paused[job] = st.Paused.Reason
		}
	}
	l.revision, err = p.cluster.Revision(t.Context())
	require.NoError(t, err)
	return l
}

// write is the second and the third step: all jobs are paused. Revisions are raised by writes, since an embedded etcd has no
// snapshot to restore.
func (p place) write(t *testing.T, l limits) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, p.sem.SetLimit(ctx, l.sem, concurrency.CreateLimit()))
	require.NoError(t, p.keyed.SetDefault(ctx, l.deflt, concurrency.CreateLimit()))
	require.NoError(t, p.keyed.Key("acme").SetLimit(ctx, l.key, concurrency.CreateLimit()))
	require.NoError(t, p.keyed.Total().SetLimit(ctx, l.total, concurrency.CreateLimit()))
	require.NoError(t, p.rate.SetRate(ctx, l.rate, concurrency.CreateLimit()))
	p.pause(t, l)
	for {
		r, err := p.cluster.Client().Put(ctx, "/raise", "")
		require.NoError(t, err)
		if r.Header.Revision > l.revision {
			return
		}
	}
}

// pause pauses all jobs, those that were paused with their reason.
func (p place) pause(t *testing.T, l limits) {
	t.Helper()
	for _, job := range moving {
		reason := l.paused[job]
		if reason == "" {
			reason = "it moves"
		}
		require.NoError(t, p.jobs.Pause(t.Context(), job, reason, schedlock.BeforeFirstRun()))
	}
}

// stop is the fourth step, on the cluster that the names leave. It returns when no permit is held.
func (p place) stop(t *testing.T, l limits) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, p.sem.SetLimit(ctx, 0))
	require.NoError(t, p.keyed.SetDefault(ctx, 0))
	require.NoError(t, p.keyed.Key("acme").SetLimit(ctx, 0))
	require.NoError(t, p.keyed.Total().SetLimit(ctx, 0))
	p.pause(t, l)
	for st, err := range p.sem.Watch(ctx) {
		require.NoError(t, err)
		if len(st.Holders) == 0 {
			return
		}
	}
}

// resume is the end of the fifth step.
func (p place) resume(t *testing.T, l limits) {
	t.Helper()
	for _, job := range moving {
		if _, was := l.paused[job]; !was {
			require.NoError(t, p.jobs.Resume(t.Context(), job))
		}
	}
}

// serves shows that a program there keeps to limits, rate and pauses, and returns the token of a permit.
func (p place) serves(t *testing.T, want limits, tick time.Time) int64 {
	t.Helper()
	ctx := t.Context()
	permit, err := p.sem.Acquire(ctx, concurrency.Weight(want.sem))
	require.NoError(t, err)
	_, err = p.sem.TryAcquire(ctx)
	require.ErrorIs(t, err, concurrency.ErrFull, "the operator's limit")
	require.NoError(t, permit.Release(ctx))
	got := p.read(t)
	got.revision = want.revision
	require.Equal(t, want, got)
	for job, outcome := range map[string]schedlock.Outcome{"invoices": schedlock.Ran, "sweep": schedlock.Paused} {
		res, err := p.jobs.Do(ctx, job, func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(tick))
		require.NoError(t, err)
		require.Equal(t, outcome, res.Outcome, job)
	}
	return permit.Token()
}

// refuses shows that a program that was forgotten on the cluster that the names have left does nothing there.
func (p place) refuses(t *testing.T, tick time.Time) {
	t.Helper()
	for _, sem := range []*concurrency.Semaphore{p.sem, p.keyed.Key("acme"), p.keyed.Key("any")} {
		_, err := sem.TryAcquire(t.Context())
		require.ErrorIs(t, err, concurrency.ErrFull)
	}
	res, err := p.jobs.Do(t.Context(), "invoices", func(context.Context, *schedlock.Run) error { return nil }, schedlock.Tick(tick))
	require.NoError(t, err)
	require.Equal(t, schedlock.Paused, res.Outcome)
}

// A768: names move to another cluster and back by the steps of docs/scaling.md. Limits, rates and pauses of operators are in
// force there, tokens grow, requests are executed once, and what the names have left does nothing. The page set limits to 0 and
// had a deploy, which began with the program's limits, without pauses and with smaller tokens, and left 0 behind for the way back.
func TestNamesMove(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	former, other := placeOf(t), placeOf(t)
	operators := limits{sem: 3, deflt: 2, key: 1, total: 7, rate: concurrency.Rate{PerSecond: 20, Burst: 2}, paused: map[string]string{"sweep": "maintenance"}, revision: 300}
	former.write(t, operators)
	former.resume(t, operators)
	greatest := former.serves(t, operators, movedAt)
	require.Greater(t, greatest, operators.revision)
	key, executed := idempotency.Key{Scope: "acme", Op: "POST /payments", ID: "K-1"}, 0
	pay := func(st *idempotency.Store) {
		_, err := idempotency.Do(ctx, st, key, "10 EUR", func(context.Context, *idempotency.Attempt) (string, error) {
			executed++
			return "paid", nil
		})
		require.NoError(t, err)
	}
	pay(former.store)
	held, err := former.sem.Acquire(ctx)
	require.NoError(t, err)
	for n, move := range []struct{ from, to place }{{former, other}, {other, former}} {
		l := move.from.read(t)
		move.to.write(t, l)
		if n == 0 {
			go func() { _ = held.Release(context.WithoutCancel(ctx)) }()
		}
		move.from.stop(t, l)
		move.to.resume(t, l)
		l = move.from.read(t)
		tick := movedAt.Add(time.Duration(n+1) * time.Hour)
		move.from.refuses(t, tick)
		require.Equal(t, []int{0, 0, 0, 0}, []int{l.sem, l.deflt, l.key, l.total})
		token := move.to.serves(t, operators, tick)
		require.Greater(t, token, greatest, "what remembers the greatest token accepts the new holder, and no former one")
		greatest = token
		pay(former.store) // the stores stay
	}
	require.Equal(t, 1, executed)
}

// A768, A807: the page has these steps, in this order. The runbook's bump is too small for a former cluster that was restored itself.
func TestPageHasTheStepsOfAMove(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/scaling.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "### Moving a name\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	rest := section
	for _, step := range []string{
		"1. Read", "`Status`", "`Keys`", "`Total`", "paused jobs", "revision", "2. Raise", "runbook.md#restore", "`--bump-revision` above it",
		"3. Write", "`SetLimit`", "`SetDefault`", "`SetRate`", "`CreateLimit`", "`BeforeFirstRun`",
		"4. Stop", "no holders and no active run", "`SetLimit(0)`", "`SetDefault(0)`", "`Pause`", "5. Deploy", "`Resume`", "6. Back", "stay",
	} {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "%s, after what is before it: %s", step, section)
		rest = after
	}
}
