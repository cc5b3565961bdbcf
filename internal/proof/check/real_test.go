package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/hostclock"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// real is a small recorded run of the product on a real etcd.
type real struct {
	t       *testing.T
	cluster *embedtest.Cluster
	rec     *history.Recorder
	admin   *clientv3.Client
	tap     *history.Tap
	workers []*worker
}

// worker is a client with its session.
type worker struct {
	*real
	client *embedtest.Client
	rec    *history.Client
	sess   *concurrency.Session
	sem    *concurrency.Semaphore
	mutex  *concurrency.Mutex
}

func startReal(t *testing.T) *real {
	t.Helper()
	c := embedtest.Start(t, nil)
	r := &real{t: t, cluster: c, rec: history.NewRecorder(), admin: c.Client()}
	prefix := strings.TrimSuffix(c.Prefix(t), "/")
	ctx := r.ctx()
	for i := range 3 {
		w := &worker{real: r, client: c.NewClient(t, nil), rec: r.rec.Client(fmt.Sprint("c", i))}
		opts := &concurrency.SessionOptions{Prefix: prefix, TTL: 2 * time.Second, Margin: time.Second, Owner: w.rec.Name()}
		call := w.rec.Call(history.Event{Name: history.Open})
		var err error
		if i == 0 { // the tap comes before anything is written
			r.rec.Set(SettingTTL, "2s")
			for _, bound := range []string{SettingReturn, SettingReported} { // no event records how the machine stalls
				r.rec.Set(bound, "5s")
			}
			r.tap, err = history.StartTap(ctx, r.rec, prefix+"/v1/ns/", r.admin)
			require.NoError(t, err)
			t.Cleanup(r.tap.Close)
		}
		w.sess, err = concurrency.NewSession(ctx, w.client.Client, "ns", opts)
		require.NoError(t, err)
		require.Equal(t, prefix+"/v1/ns/", w.sess.NamespacePrefix())
		call.Return(history.Event{Outcome: history.OK, Lease: int64(w.sess.Lease())})
		w.sem, err = concurrency.NewSemaphore(w.sess, "a", 2, &concurrency.SemaphoreOptions{AdoptLimit: true})
		require.NoError(t, err)
		w.mutex, err = concurrency.NewMutex(w.sess, "m")
		require.NoError(t, err)
		r.workers = append(r.workers, w)
	}
	return r
}

func (r *real) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r.t.Cleanup(cancel)
	return ctx
}

func full(err error) string {
	if errors.Is(err, concurrency.ErrFull) {
		return history.Full
	}
	return ""
}

// use asks for a permit, writes under its guard and gives it back.
func (w *worker) use(r *rand.Rand) {
	e := history.Event{Name: history.Acquire, Gate: "semaphore/a", Weight: int64(1 + r.IntN(2))}
	get := w.sem.Acquire
	if r.IntN(3) == 0 {
		e.Gate, e.Weight, get = "mutex/m", 1, w.mutex.Lock
	} else if r.IntN(4) == 0 {
		e.Name, get = history.Try, w.sem.TryAcquire
	}
	ctx, cancel := context.WithTimeout(w.ctx(), time.Duration(5+r.IntN(300))*time.Millisecond)
	defer cancel()
	d, _ := ctx.Deadline()
	e.Until = hostclock.At(d)
	call := w.rec.Call(e)
	opts := []concurrency.AcquireOption{concurrency.Note(call.Tag())}
	if e.Weight > 1 {
		opts = append(opts, concurrency.Weight(2))
	}
	p, err := get(ctx, opts...)
	if err != nil {
		call.Return(history.Event{Outcome: history.Fail, Error: err.Error(), Cause: full(err)})
		return
	}
	b := call.Granted(p.Token())
	for end := time.Now().Add(time.Duration(r.IntN(20)) * time.Millisecond); b.Check(p) && time.Now().Before(end); time.Sleep(time.Millisecond) {
		w.effect(p, e.Gate)
	}
	w.giveBack(p, b, e.Gate)
}

func (w *worker) giveBack(p *concurrency.Permit, b *history.Belief, gate string) {
	if b.Check(p) {
		b.End(history.Released)
	} else {
		b.End(history.Lost)
	}
	call := w.rec.Call(history.Event{Name: history.Release, Gate: gate, Token: p.Token()})
	call.Done(p.Release(w.ctx()), func(err error) bool { return errors.Is(err, concurrency.ErrLost) })
}

func (w *worker) effect(p *concurrency.Permit, gate string) {
	key := w.sess.NamespacePrefix() + "register/" + gate
	e := history.Event{Kind: history.KindEffect, Gate: gate, Token: p.Token(), Outcome: history.Fail,
		Attr: map[string]string{"register": key, "mode": history.ModeGuard}}
	resp, err := w.client.Txn(w.ctx()).If(p.Guard()).Then(clientv3.OpPut(key, "x")).Commit()
	require.NoError(w.t, err)
	if resp.Succeeded {
		e.Outcome, e.Rev = history.OK, resp.Header.Revision
	}
	w.rec.Add(e)
}

func (w *worker) setLimit(n int) {
	call := w.rec.Call(history.Event{Name: history.SetLimit, Gate: "semaphore/a", Limit: int64(n)})
	call.Done(w.sem.SetLimit(w.ctx(), n, concurrency.CreateLimit()), nil)
}

func (w *worker) status() {
	call := w.rec.Call(history.Event{Name: history.Status, Gate: "semaphore/a"})
	st, err := w.sem.Status(w.ctx())
	require.NoError(w.t, err)
	call.Return(history.Event{Outcome: history.OK, Rev: st.Revision, N: int64(st.Used)})
}

// judge ends the run as a harness does.
func (r *real) judge() *Report {
	r.t.Helper()
	ctx := r.ctx()
	mark := func(name string) {
		require.NoError(r.t, r.tap.Complete(ctx))
		r.rec.Mark(name)
	}
	mark(history.MarkHealthy)
	quiet := r.workers[0].sess.NamespacePrefix()
	require.Eventually(r.t, func() bool { // given-up requests are removed in the background
		sem, err := r.admin.Get(ctx, quiet+"semaphore/a/queue/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(r.t, err)
		mutex, err := r.admin.Get(ctx, quiet+"mutex/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(r.t, err)
		return sem.Count+mutex.Count == 0
	}, time.Minute, 20*time.Millisecond)
	mark(history.MarkIdle)
	for _, w := range r.workers {
		call := w.rec.Call(history.Event{Name: history.Close, Lease: int64(w.sess.Lease())})
		call.Done(w.sess.Close(ctx), nil)
	}
	r.expired()
	mark(history.MarkDrained)
	h, err := r.rec.History()
	require.NoError(r.t, err)
	suite, err := Suite(h)
	require.NoError(r.t, err)
	report := Judge(h, suite...)
	if r.t.Failed() || testing.Verbose() {
		r.t.Log(report)
	}
	return report
}

// TestRealRun: the product on a real etcd, judged green.
func TestRealRun(t *testing.T) {
	t.Parallel()
	r := startReal(t)
	for _, name := range []string{EffectGrants, EffectLimits, EffectEvictions} {
		r.rec.Set(RequirePrefix+name, "1")
	}
	var wg sync.WaitGroup
	for i, w := range r.workers {
		for j := range 3 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for range 25 {
					w.use(rng)
				}
			})
		}
	}
	w := r.workers[0]
	for i := range 6 {
		w.setLimit(1 + i%3)
		w.status()
	}
	wg.Wait()
	w.setLimit(3)

	// A request is evicted, and a lease is revoked: both are reported, so both are
	// excused.
	call := w.rec.Call(history.Event{Name: history.Acquire, Gate: "semaphore/a", Weight: 1, ID: "x"})
	p, err := w.sem.Acquire(w.ctx(), concurrency.ID("x"), concurrency.Note(call.Tag()))
	require.NoError(t, err)
	b := call.Granted(p.Token())
	b.Check(p)
	evict := r.workers[1].rec.Call(history.Event{Name: history.Evict, Gate: "semaphore/a", ID: "x"})
	evict.Done(r.workers[1].sem.Evict(w.ctx(), "x", "test"), nil)
	<-p.Context().Done()
	w.giveBack(p, b, "semaphore/a")

	p, b = w.lock()
	finish := r.rec.Begin(history.Event{Name: "revoke", Lease: int64(w.sess.Lease())})
	_, err = r.admin.Revoke(w.ctx(), w.sess.Lease())
	require.NoError(t, err)
	finish()
	<-p.Context().Done()
	w.giveBack(p, b, "mutex/m")
	report := r.judge()
	require.Equal(t, Green, report.Verdict, report)
}

func (w *worker) lock() (*concurrency.Permit, *history.Belief) {
	call := w.rec.Call(history.Event{Name: history.Acquire, Gate: "mutex/m", Weight: 1})
	p, err := w.mutex.Lock(w.ctx(), concurrency.Note(call.Tag()))
	require.NoError(w.t, err)
	b := call.Granted(p.Token())
	require.True(w.t, b.Check(p))
	return p, b
}

// TestRealRunTampered: the same with undeclared interference.
func TestRealRunTampered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tamper func(r *real, key string)
		killer string
	}{
		"delete": {func(r *real, key string) {
			_, err := r.admin.Delete(r.ctx(), key)
			require.NoError(r.t, err)
		}, "store/delete"},
		"overwrite": {func(r *real, key string) {
			_, err := r.admin.Put(r.ctx(), key, "mine", clientv3.WithIgnoreLease())
			require.NoError(r.t, err)
		}, "store/once"},
		"leftover": {func(r *real, key string) {
			lease, err := r.admin.Grant(r.ctx(), 600)
			require.NoError(r.t, err)
			_, err = r.admin.Put(r.ctx(), r.workers[0].sess.NamespacePrefix()+fmt.Sprintf("session/%016x/alive", int64(lease.ID)), "")
			require.NoError(r.t, err)
		}, "store/left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startReal(t)
			w := r.workers[0]
			p, b := w.lock()
			kvs, err := r.admin.Get(w.ctx(), w.sess.NamespacePrefix()+"mutex/m/queue/", clientv3.WithPrefix())
			require.NoError(t, err)
			require.Len(t, kvs.Kvs, 1)
			tt.tamper(r, string(kvs.Kvs[0].Key))
			require.NoError(t, r.tap.Complete(w.ctx())) // else it may have been after the release was called
			w.giveBack(p, b, "mutex/m")
			report := r.judge()
			require.Equal(t, Red, report.Verdict)
			require.Contains(t, report.Killers(), tt.killer, report.String())
		})
	}
}
