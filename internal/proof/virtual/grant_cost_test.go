package virtual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
)

// grantCost is what the grants of some processes cost etcd: messages, by what they are for.
type grantCost struct {
	trip time.Duration // of a request and its answer

	mu     sync.Mutex
	counts map[string]int
}

// The messages that are counted. Events are counted by the watch that brings them.
const (
	costWrites  = "writes"  // Txns that change a key
	costReads   = "reads"   // Txns that change none, and ranges
	costWatches = "watches" // created
	costTwice   = "twice"   // events that a process has received by another watch already
	costEvents  = "events"

	watchQueue   = "queue"     // of the whole queue
	watchDeleted = "deletions" // in the whole queue
	watchOne     = "one"       // of single requests
	watchSample  = "sample"    // of a few parts of the queue
	watchOwn     = "own"       // of the session's own requests
	watchRest    = "rest"      // of the limit, and of the session's range
)

// connection is the watches of one process, all on one stream.
type connection struct {
	*grantCost
	asked []string         // kinds of the watches that etcd has not confirmed, in order
	kinds map[int64]string // of those that it has
	seen  map[string]bool  // events, by key and revision
}

func (g *grantCost) meets(d *desk) {
	c := &connection{grantCost: g, kinds: map[int64]string{}, seen: map[string]bool{}}
	d.client.Inject(c.meet)
}

func (g *grantCost) add(what string, n int) { g.counts[what] += n }

func (c *connection) meet(m etcdfake.Message) (fate etcdfake.Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch body := m.Body.(type) {
	case *pb.WatchRequest:
		if r := body.GetCreateRequest(); r != nil {
			c.add(costWatches, 1)
			c.asked = append(c.asked, kindOf(r))
		}
	case *pb.WatchResponse:
		if body.Created {
			c.kinds[body.WatchId], c.asked = c.asked[0], c.asked[1:]
		}
		kind, ok := c.kinds[body.WatchId]
		if !ok {
			kind = watchRest // from before
		}
		c.add(kind, len(body.Events))
		c.add(costEvents, len(body.Events))
		for _, ev := range body.Events {
			at := fmt.Sprint(string(ev.Kv.Key), ev.Kv.ModRevision)
			if c.seen[at] {
				c.add(costTwice, 1)
			}
			c.seen[at] = true
		}
	case *pb.TxnRequest:
		if changes(body) {
			c.add(costWrites, 1)
		} else {
			c.add(costReads, 1)
		}
		return etcdfake.Fault{RequestDelay: c.trip / 2, ResponseDelay: c.trip / 2}
	case *pb.RangeRequest:
		c.add(costReads, 1)
		return etcdfake.Fault{RequestDelay: c.trip / 2, ResponseDelay: c.trip / 2}
	}
	return fate
}

func kindOf(r *pb.WatchCreateRequest) string {
	key := string(r.Key)
	switch {
	case key == root+gate+"/" && len(r.Filters) == 0:
		return watchQueue
	case key == root+gate+"/":
		return watchDeleted
	case !strings.HasPrefix(key, queueRange):
		return watchRest
	case strings.HasSuffix(key, "-"):
		return watchOwn
	case strings.HasSuffix(string(r.RangeEnd), "\x00"):
		return watchSample
	}
	return watchOne
}

func changes(txn *pb.TxnRequest) bool {
	for _, op := range append(txn.Success, txn.Failure...) {
		if op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil || op.GetRequestTxn() != nil && changes(op.GetRequestTxn()) {
			return true
		}
	}
	return false
}

// crowdedRow is one row: processes that work under one limit, a permit at a time for each caller.
type crowdedRow struct {
	processes, callers, limit int
	hold                      time.Duration // from half of it to one and a half times as long
	opts                      []concurrency.AcquireOption
	rounds                    int // of all callers before they are counted, and half as many while they are

	events, reads, watches float64 // at most, for each grant
}

// measure returns what a grant costs, once each caller has had a turn.
func (r crowdedRow) measure(t *testing.T) (per map[string]float64) {
	g := &grantCost{trip: time.Millisecond, counts: map[string]int{}}
	bubble(t, r.processes, func(t *testing.T, on []*desk) {
		ctx, stop := context.WithCancel(t.Context())
		var grants atomic.Int64
		synctest.Wait() // the watches of the sessions' own ranges exist
		var all sync.WaitGroup
		for _, d := range on {
			sem := d.semaphore(r.limit)
			g.meets(d)
			for range r.callers {
				all.Go(func() {
					for ctx.Err() == nil {
						p, err := sem.Acquire(ctx, r.opts...)
						if err != nil {
							time.Sleep(r.hold)
							continue
						}
						grants.Add(1)
						time.Sleep(r.hold/2 + rand.N(r.hold))
						_ = p.Release(context.Background())
					}
				})
			}
		}
		until := func(n int) {
			for grants.Load() < int64(n) {
				time.Sleep(time.Millisecond)
			}
		}
		until(r.rounds * r.processes * r.callers)
		g.mu.Lock()
		clear(g.counts)
		g.mu.Unlock()
		from, begun := grants.Load(), time.Now()
		until(int(from) + r.rounds*r.processes*r.callers/2)
		g.mu.Lock()
		n, took := float64(grants.Load()-from), time.Since(begun)
		per = map[string]float64{"used": n * float64(r.hold) / float64(took) / float64(r.limit)}
		for what, count := range g.counts {
			per[what] = float64(count) / n
		}
		g.mu.Unlock()
		stop()
		all.Wait()
		synctest.Wait()
	})
	return per
}

// What a grant costs etcd, by what it is for. Time is virtual, so the counts do not depend on the machine's load.
func TestCostOfAGrant(t *testing.T) {
	t.Parallel()
	bounded := []concurrency.AcquireOption{concurrency.MaxWaiters(5)}
	for name, r := range map[string]crowdedRow{
		"limit 1, 8 processes":                   {8, 1, 1, time.Millisecond, nil, 12, 16.5, 0.1, 0.1},
		"limit 1, 64 processes":                  {64, 1, 1, time.Millisecond, nil, 8, 13.5, 3.3, 2.3},
		"limit 10, 64 processes":                 {64, 1, 10, 5 * time.Millisecond, nil, 8, 42, 3.5, 5.8},
		"limit 100, 256 processes":               {256, 1, 100, 50 * time.Millisecond, nil, 2, 72, 3.1, 2.1},
		"limit 7, 3 processes with 10 callers":   {3, 10, 7, 5 * time.Millisecond, nil, 10, 6.5, 0.1, 0.1},
		"limit 7, the same with MaxWaiters of 5": {3, 10, 7, 5 * time.Millisecond, bounded, 10, 6.5, 1.2, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			per := r.measure(t)
			t.Logf("used %.2f, writes %.2f, reads %.2f, watches %.2f; events %.2f: queue %.2f, deletions %.2f, one %.2f, sample %.2f, own %.2f, rest %.2f; twice %.2f",
				per["used"], per[costWrites], per[costReads], per[costWatches], per[costEvents],
				per[watchQueue], per[watchDeleted], per[watchOne], per[watchSample], per[watchOwn], per[watchRest], per[costTwice])
			require.InDelta(t, 2, per[costWrites], 0.2, "one to join, one to leave")
			require.LessOrEqual(t, per[costEvents], r.events)
			require.LessOrEqual(t, per[costReads], r.reads)
			require.LessOrEqual(t, per[costWatches], r.watches)
		})
	}
}
