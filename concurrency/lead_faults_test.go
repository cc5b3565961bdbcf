package concurrency_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// J15: ctx ends at every point of campaigning, leading, renewing and resigning, and
// what is under way arrives late, or twice, or its answer is lost. The term is given up
// once, and the next one, in the same slot, is not touched.
func TestLeadIsCancelledAnywhere(t *testing.T) {
	t.Parallel()
	points := map[string]embedtest.Fault{}
	for name, do := range map[string]embedtest.Action{"request held": embedtest.HoldRequest, "answer held": embedtest.HoldResponse, "answer lost": embedtest.DropResponse, "twice": embedtest.Duplicate} {
		points["campaign, "+name] = embedtest.Fault{Method: "Txn", Match: txn(true), Do: do}
		points["resignation, "+name] = embedtest.Fault{Method: "Txn", Match: txn(false), Do: do}
		if do != embedtest.Duplicate {
			points["renewal, "+name] = embedtest.Fault{Method: "LeaseKeepAlive", Do: do}
		}
	}
	for name, point := range points {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			s, c := f.Session(brisk())
			el := election(t, s, "x")
			rev, err := f.Revision(ctxT(t))
			require.NoError(t, err)
			changes := f.Client().Watch(ctxT(t), f.Root, clientv3.WithPrefix(), clientv3.WithRev(rev+1))
			struck := c.Inject(point)
			ctx, cancel := context.WithCancel(ctxT(t))
			defer cancel()
			began, calls := make(chan struct{}, 100), atomic.Int32{}
			result := make(chan error, 1)
			go func() {
				result <- el.Lead(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
					calls.Add(1)
					began <- struct{}{}
					<-ctx.Done()
					return ctx.Err()
				})
			}()
			if contains(name, "resignation") {
				got(t, began, "it leads")
				cancel()
			}
			require.NoError(t, struck.WaitHit(ctxT(t)))
			cancel()
			require.ErrorIs(t, got(t, result, "Lead returns"), context.Canceled)
			require.LessOrEqual(t, calls.Load(), int32(1))
			f.NoKeys("/queue/")
			next, err := el.Campaign(ctxT(t))
			require.NoError(t, err)
			_ = struck.Release() // what arrives late may be refused
			struck.Remove()
			_ = struck.Release()
			resp, err := f.Client().Txn(ctxT(t)).If(next.Guard()).Then(clientv3.OpPut(f.Root+"y", "")).Commit()
			require.NoError(t, err)
			require.True(t, resp.Succeeded, "the next term was touched")
			require.NoError(t, next.Err())
			require.NoError(t, next.Release(ctxT(t)))
			f.NoKeys("/queue/")
			put, err := f.Client().Put(ctxT(t), f.Root+"the end", "")
			require.NoError(t, err)
			puts, deletes := 0, 0
			for resp := range changes {
				require.NoError(t, resp.Err())
				for _, ev := range resp.Events {
					switch key := string(ev.Kv.Key); {
					case ev.Kv.ModRevision == put.Header.Revision:
						require.Equal(t, puts, deletes)
						return
					case !contains(key, "/queue/"):
					case ev.Type == clientv3.EventTypeDelete:
						deletes++
					default:
						require.True(t, ev.IsCreate(), "a term was written again")
						puts++
					}
				}
			}
		})
	}
}

// J16: a storm of cancellations: never two lead, and nothing is left.
func TestLeadCancelStorm(t *testing.T) {
	t.Parallel()
	f := shared(t)
	ctx := ctxT(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var g gauge
	var led atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		s, _ := f.Session(nil)
		el := election(t, s, "x")
		for j := range 4 {
			r := rand.New(rand.NewPCG(seed, uint64(i*100+j)))
			wg.Go(func() {
				for range 15 {
					ctx, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(40_000))*time.Microsecond)
					hold := time.Duration(r.IntN(2000)) * time.Microsecond
					err := el.Lead(ctx, func(ctx context.Context, _ *concurrency.Permit) error {
						g.enter(1)
						defer g.leave(1)
						led.Add(1)
						select {
						case <-ctx.Done():
						case <-time.After(hold):
						}
						return nil
					})
					cancel()
					if err != nil && !errorsIs(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.LessOrEqual(t, g.peak.Load(), int64(1))
	f.NoKeys("/queue/")
	s, _ := f.Session(nil)
	require.NoError(t, election(t, s, "x").Lead(ctx, func(context.Context, *concurrency.Permit) error { led.Add(1); return nil }))
	require.Positive(t, led.Load())
}

var sample = regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: (.*)$`)

// goroutines counts those that were started, directly or not, under a label.
func goroutines(t *testing.T, label string) (n int) {
	var b bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&b, 1))
	for _, m := range sample.FindAllStringSubmatch(b.String(), -1) {
		if contains(m[2], strconv.Quote(label)) {
			k, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			n += k
		}
	}
	return n
}

// J17: a hundred changes of leader cost no goroutine, no lease and no watch.
func TestElectionCycles(t *testing.T) {
	t.Parallel()
	f := own(t, 1)
	ctx, cancel := context.WithCancel(ctxT(t))
	label := fmt.Sprint("cycles-", rand.Uint64())
	type running struct {
		terms  <-chan term
		result <-chan error
		c      *embedtest.Client
	}
	var all [2]running
	admin, _ := f.Session(idle())
	el := election(t, admin, "x")
	pprof.Do(ctx, pprof.Labels("test", label), func(ctx context.Context) {
		for i := range all {
			s, c := f.Session(idle())
			terms, result := lead(t, ctx, election(t, s, "x"))
			all[i] = running{terms, result, c}
		}
	})
	next := func() term {
		t.Helper()
		select {
		case now := <-all[0].terms:
			return now
		case now := <-all[1].terms:
			return now
		case <-time.After(soon):
			require.FailNow(t, "there is no leader")
			panic("unreachable")
		}
	}
	now := next()
	cycle := func() {
		_, err := el.StepDown(ctx, "")
		require.NoError(t, err)
		closed(t, now.ctx.Done(), "it is asked")
		now.end <- nil
		last := now
		now = next()
		require.Greater(t, now.Token(), last.Token())
		require.Eventually(t, func() bool { return len(f.Keys("/queue/")) == 2 }, soon, tick, "the last one campaigns again")
	}
	for range 10 {
		cycle()
	}
	f.NoKeys("/stop/")
	var before int
	require.Eventually(t, func() bool { // until it has settled
		was := before
		before = goroutines(t, label)
		return before > 0 && before == was
	}, soon, 20*time.Millisecond)
	for i := range all {
		all[i].c.ResetRequests()
	}
	for range 40 {
		cycle()
	}
	f.NoKeys("/stop/")
	require.Eventually(t, func() bool { return goroutines(t, label) <= before }, soon, 20*time.Millisecond, "%d goroutines at first", before)
	for i := range all {
		requests := all[i].c.Requests()
		require.Zero(t, requests["LeaseGrant"])
		require.Zero(t, requests["Watch"], "new streams")
		require.Zero(t, requests["Watch.Send"], "new watches")
		f.streams(all[i].c)
	}
	require.Len(t, f.Keys("/alive"), 3)
	cancel()
	now.end <- nil
	for i := range all {
		require.ErrorIs(t, got(t, all[i].result, "Lead returns"), context.Canceled)
	}
}
