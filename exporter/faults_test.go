package exporter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/exporter"
)

// brief are options by which an exporter notices a broken watch soon, and reads again soon.
func brief() *exporter.Options {
	return &exporter.Options{Probe: 200 * time.Millisecond, Refresh: time.Second}
}

// While the watch is cut off, the state changes and its history is compacted. Nothing of the old state is
// published after the bound, and afterwards all is right.
func TestCompactionWhileCutOff(t *testing.T) {
	t.Parallel()
	f := fixture{own(t)}
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	sm, err := concurrency.NewSemaphore(s, "x", 1, nil)
	require.NoError(t, err)
	first := acquire(t, ctx, sm)
	c := f.NewClient(t, nil)
	core, logs := observer.New(zap.WarnLevel)
	e := f.exportOn(c.Client, f.namespace(s), &exporter.Options{Probe: 200 * time.Millisecond, Logger: zap.New(core)})
	e.shows(of(queue("semaphore", "x"), map[string]float64{"held": 1, "waiting": 0}))
	c.BlackHole()
	w := f.ask(ctx, sm)
	require.True(t, e.Up())
	require.Eventually(t, func() bool { return e.series()["exporter_up{}"] == 0 }, soon, look)
	require.False(t, e.Up())
	require.NotContains(t, e.series(), "held{"+queue("semaphore", "x")+"}", "the state is not confirmed")
	require.Contains(t, e.series(), "exporter_last_answer_timestamp_seconds{}")
	require.Eventually(t, func() bool { return logs.Len() == 1 }, soon, look, "the watch has ended")
	require.NoError(t, first.Release(ctx))
	p := f.granted(w)
	more := f.ask(ctx, sm)
	_, err = f.Compact(ctx)
	require.NoError(t, err)
	c.Heal()
	got := e.shows(of(queue("semaphore", "x"), map[string]float64{"held": 1, "waiting": 1}))
	require.Equal(t, 1.0, got["exporter_up{}"])
	require.True(t, e.Up())
	require.GreaterOrEqual(t, got["exporter_lists_total{}"], 2.0)
	require.NoError(t, p.Release(ctx))
	e.shows(of(queue("semaphore", "x"), map[string]float64{"held": 1, "waiting": 0}))
	require.NoError(t, f.granted(more).Release(ctx))
}

// A watch that is alive and loses events is found out by the next list.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	c := f.NewClient(t, nil)
	e := f.exportOn(c.Client, f.namespace(s), brief())
	mu, err := concurrency.NewMutex(s, "x")
	require.NoError(t, err)
	e.reaches(f)
	inj := c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Match: hasEventsOf(s.NamespacePrefix() + "mutex/x/")})
	p, err := mu.Lock(ctx)
	require.NoError(t, err)
	closed(t, hit(t, inj), "the event is lost")
	e.shows(of(queue("mutex", "x"), map[string]float64{"held": 1}))
	require.NoError(t, p.Release(ctx))
}

// Pages of two keys, as of one revision, show the same as one page; also while the keys change.
func TestPages(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	fill(t, f, s)
	for _, key := range []string{"idempotency/x", "idempotency/%zz/record/1", "idempotency/payments/record/foreign", "zzz", "a", "job/x", "semaphore/%zz/limit", "limiter/x"} {
		_, err := f.Client().Put(ctx, s.NamespacePrefix()+key, "x")
		require.NoError(t, err)
	}
	whole := f.export(s, nil).reaches(f)
	require.Equal(t, float64(len(f.Keys(""))), whole["keys{}"])
	e := f.export(s, nil, func(e *exporter.Exporter) { e.SetPage(2) })
	same(t, whole, e.reaches(f))
	c := f.NewClient(t, nil)
	n := 0
	c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.Pass, Times: -1, Before: func() {
		// Each page finds another revision. What is deleted is put again first, so that a mixture would show.
		n++
		_, err := f.Client().Put(ctx, s.NamespacePrefix()+"zzz", fmt.Sprint(n))
		if err != nil {
			t.Error(err)
		}
	}})
	moving := f.exportOn(c.Client, f.namespace(s), nil, func(e *exporter.Exporter) { e.SetPage(2) })
	same(t, whole, moving.reaches(f))
	require.Greater(t, n, 10)
}

// What the first list shows is the namespace at its own revision, although it changes between the pages: here
// no event arrives that could mend a mixture.
func TestPagesAreOfOneRevision(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	fill(t, f, s)
	before := float64(len(f.Keys("")))
	c := f.NewClient(t, nil)
	c.Inject(embedtest.Fault{Method: "Watch", Do: embedtest.DropResponse, Match: hasEvents, Times: -1})
	n := 0
	c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.Pass, Skip: 1, Times: -1, Before: func() {
		n++
		if _, err := f.Client().Put(ctx, s.NamespacePrefix()+fmt.Sprint("zzz", n), ""); err != nil {
			t.Error(err)
		}
	}})
	e := f.exportOn(c.Client, f.namespace(s), nil, func(e *exporter.Exporter) { e.SetPage(2) })
	e.shows(map[string]float64{"exporter_lists_total{}": 1, "keys{}": before})
	require.Greater(t, n, 10)
}

// History that is compacted between two pages makes the list begin again.
func TestCompactionBetweenPages(t *testing.T) {
	t.Parallel()
	f := fixture{own(t)}
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	fill(t, f, s)
	whole := f.export(s, nil).reaches(f)
	c := f.NewClient(t, nil)
	inj := c.Inject(embedtest.Fault{Method: "Range", Do: embedtest.Pass, Skip: 3, Before: func() {
		_, err := f.Client().Put(ctx, s.NamespacePrefix()+"session/x", "") // so that the list's revision is not the latest
		if err == nil {
			_, err = f.Client().Delete(ctx, s.NamespacePrefix()+"session/x")
		}
		if err == nil {
			_, err = f.Compact(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}})
	e := f.exportOn(c.Client, f.namespace(s), nil, func(e *exporter.Exporter) { e.SetPage(2) })
	same(t, whole, e.reaches(f))
	require.Equal(t, 1, inj.Hits())
}

// etcd is restored from a backup: the watch waits for revisions that no longer come, and the state is listed.
func TestRestoredBackup(t *testing.T) {
	if testing.Short() {
		t.Skip("it restarts etcd")
	}
	t.Parallel()
	f := fixture{own(t)}
	ctx := ctxT(t)
	put := func(key string) {
		_, err := f.Client().Put(ctx, f.Root+"v1/test/semaphore/"+key+"/limit", `{"v":1,"limit":3,"nonce":"n","at":1}`)
		require.NoError(t, err)
	}
	put("a")
	backup, err := f.Backup(ctx)
	require.NoError(t, err)
	for range 20 {
		put("b")
	}
	e := f.exportOn(f.NewClient(t, nil).Client, "test", &exporter.Options{Probe: 200 * time.Millisecond})
	e.shows(map[string]float64{"limit{" + queue("semaphore", "b") + "}": 3})
	require.NoError(t, f.Restore(ctx, backup))
	require.Eventually(t, func() bool {
		got := e.series()
		_, b := got["limit{"+queue("semaphore", "b")+"}"]
		return got["exporter_up{}"] == 1 && got["limit{"+queue("semaphore", "a")+"}"] == 3 && !b
	}, soon, look)
}

// A page that is larger than the client accepts is read with fewer keys, and a value that is too large is not
// read at all.
func TestSmallMessages(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	s, _ := f.Session(idle())
	fill(t, f, s)
	_, err := f.Client().Put(ctx, s.NamespacePrefix()+"semaphore/big/limit", string(make([]byte, 64<<10)))
	require.NoError(t, err)
	whole := f.export(s, nil).reaches(f)
	c := f.NewClient(t, &embedtest.ClientOptions{Configure: func(c *clientv3.Config) { c.MaxCallRecvMsgSize = 4 << 10; c.MaxCallSendMsgSize = 2 << 10 }})
	e := f.exportOn(c.Client, f.namespace(s), nil)
	same(t, whole, e.reaches(f))
}

// Run returns ctx's error, is not called twice at a time, and can be called again.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s, _ := f.Session(idle())
	e := f.export(s, nil)
	e.reaches(f)
	require.ErrorIs(t, e.Run(ctxT(t)), exporter.ErrInvalid)
	e.cancel()
	err := <-e.ended
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel := cancellable(t)
	go func() { e.ended <- e.Run(ctx) }()
	e.cancel = cancel
	require.Eventually(t, func() bool { return e.series()["exporter_lists_total{}"] == 2 }, soon, look)
}
