package virtual

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// noticed has a request notice the outage, after its StoreTimeout. The next ones are then answered at once,
// for a second.
func noticed(t *testing.T, handler http.Handler) {
	t.Helper()
	a := post(handler, "notices")
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.Equal(t, 5*time.Second, a.took)
}

// A request that etcd does not answer is no outage while others are answered; nor is a wait for an attempt in
// progress (Q7 in internal/proof/tested-failures.md).
func TestSilenceOfOneRequestIsNoOutage(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		d := on[0]
		handler := d.behind(&idemhttp.Options{Wait: 3 * time.Second}, created)
		busy := make(chan struct{})
		go post(on[1].behind(&idemhttp.Options{}, func(http.ResponseWriter, *http.Request) { <-busy }), "busy")
		defer close(busy)
		require.Equal(t, http.StatusCreated, post(handler, "a").status)

		var lose atomic.Bool
		d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			return etcdfake.Fault{DropRequest: (m.Method == "Range" || m.Method == "Txn") && lose.CompareAndSwap(true, false)}
		})
		lose.Store(true)
		lost := make(chan timed)
		go func() { lost <- post(handler, "lost") }()
		time.Sleep(time.Second)
		require.Equal(t, http.StatusCreated, post(handler, "b").status)
		a := <-lost
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Equal(t, 5*time.Second, a.took, "the first answer is waited for as long as StoreTimeout, whatever Wait is")
		require.Equal(t, http.StatusCreated, post(handler, "c").status)

		a = post(handler, "busy")
		require.Equal(t, http.StatusConflict, a.status)
		require.Equal(t, 3*time.Second, a.took)
		require.Equal(t, http.StatusCreated, post(handler, "d").status)
	})
}

// Q7: a server that renews leases and answers nothing else is away. A renewal has a request ask at once, and
// does not end the outage. A request that is claimed without a read has the same bound.
func TestOutageWithRenewals(t *testing.T) {
	t.Parallel()
	for name, each := range map[string][]idempotency.Option{"read": nil, "claimed without a read": {idempotency.LikelyNew()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d := on[0]
				handler := d.behind(&idemhttp.Options{Each: func(*http.Request) []idempotency.Option { return each }}, created)
				require.Equal(t, http.StatusCreated, post(handler, "a").status)
				d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
					return etcdfake.Fault{DropRequest: m.Method == "Range" || m.Method == "Txn"}
				})
				noticed(t, handler)
				s := startStorm(d, handler)
				time.Sleep(2 * ttl)
				require.LessOrEqual(t, s.inside.since(), int64(10))
				d.client.Inject(nil)
				time.Sleep(2 * time.Second)
				all := s.stop()
				require.Equal(t, http.StatusCreated, all[len(all)-1].status)
			})
		})
	}
}

// Q7: the answer to a session that has got its lease anew has a request ask at once.
func TestSessionsAnswerEndsAnOutage(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		handler := d.behind(&idemhttp.Options{}, created)
		require.Equal(t, http.StatusCreated, post(handler, "a").status)
		d.client.Stall()
		noticed(t, handler)
		require.Zero(t, post(handler, "b").took)
		time.Sleep(900 * time.Millisecond)
		d.client.Heal() // with what was under way: the renewal of the session
		synctest.Wait()
		require.Equal(t, http.StatusCreated, post(handler, "b").status)
		require.Equal(t, http.StatusCreated, post(handler, "c").status)
	})
}

// A108: an outage ends when etcd answers, however slowly. Every tenth request that asks waits as long as any
// other, so one that needs more than a second for its answer shows that etcd is back.
func TestOutageEndsWithASlowEtcd(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, on []*desk) {
		d := on[0]
		handler := d.behind(&idemhttp.Options{}, created)
		fate := func(of etcdfake.Fault) {
			d.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
				if m.Method == "Range" || m.Method == "Txn" {
					return of
				}
				return etcdfake.Fault{}
			})
		}
		fate(etcdfake.Fault{RequestDelay: 1500 * time.Millisecond})
		require.Equal(t, http.StatusCreated, post(handler, "slow").status)
		fate(etcdfake.Fault{DropRequest: true})
		noticed(t, handler)
		fate(etcdfake.Fault{RequestDelay: 1500 * time.Millisecond})
		s := startStorm(d, handler)
		time.Sleep(20 * time.Second)
		all := s.stop()
		require.Equal(t, http.StatusCreated, all[len(all)-1].status)
	})
}

// tally counts the runs of handlers by key.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[key]++
	return c.of[key]
}

func (c *tally) times(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[key]
}

// Q8: with FailOpen each request of an outage runs at once, except for those of which this process knows more:
// a response that it has is replayed, an attempt in progress here is waited for, and one that was lost here, or
// whose response etcd does not have, does not run again.
func TestFailOpenInAnOutage(t *testing.T) {
	t.Parallel()
	for how, away := range aways {
		t.Run(how, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, on []*desk) {
				d, end := on[0], make(chan struct{})
				finish := sync.OnceFunc(func() { close(end) })
				defer finish()
				runs := tally{of: map[string]int{}}
				handler := d.behind(&idemhttp.Options{FailOpen: true, Wait: 2 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
					key := r.Header.Get("Idempotency-Key")
					if runs.add(key) == 1 && key == "long" {
						<-end
					}
					created(w, r)
				})
				long := make(chan timed, 1)
				go func() { long <- post(handler, "long") }()
				synctest.Wait()
				away(d.client)
				time.Sleep(time.Second)
				began := time.Now()
				require.Equal(t, http.StatusCreated, post(handler, "notices").status)
				require.Equal(t, 5*time.Second, time.Since(began))
				for n := range 50 {
					a := post(handler, strconv.Itoa(n))
					require.Equal(t, http.StatusCreated, a.status)
					require.Zero(t, a.took)
				}
				a := post(handler, "long")
				require.Equal(t, http.StatusConflict, a.status, "in progress here")
				require.Equal(t, 2*time.Second, a.took, "it has waited for the attempt as long as Wait")

				time.Sleep(time.Minute) // the session is lost, and the attempt with it
				for range 20 {
					require.Equal(t, http.StatusServiceUnavailable, post(handler, "long").status, "lost here, and it still runs")
				}
				finish()
				require.Equal(t, http.StatusConflict, (<-long).status, "withheld: another attempt may have begun")
				require.Equal(t, http.StatusServiceUnavailable, post(handler, "long").status, "done here, and etcd does not have it")
				require.Equal(t, 1, runs.times("long"))

				d.client.Heal()
				time.Sleep(10 * time.Second)
				require.Equal(t, http.StatusCreated, post(handler, "long").status)
				require.Equal(t, http.StatusCreated, post(handler, "after").status)
				require.Equal(t, 1, runs.times("long"), "its response was recorded after the outage")

				away(d.client)
				require.Equal(t, http.StatusCreated, post(handler, "after").status)
				require.Equal(t, 1, runs.times("after"), "a replay")
			})
		})
	}
}

// A duplicate that is the first to ask when etcd is back waits for the attempt in progress as long as Wait: the
// bound of one that asks in an outage ends with etcd's first answer.
func TestWaiterThatEndsAnOutage(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		end := make(chan struct{})
		finish := sync.OnceFunc(func() { close(end) })
		defer finish()
		other := on[1].behind(&idemhttp.Options{}, func(w http.ResponseWriter, r *http.Request) { <-end; created(w, r) })
		go post(other, "busy")
		d := on[0]
		handler := d.behind(&idemhttp.Options{Wait: 20 * time.Second}, func(http.ResponseWriter, *http.Request) { t.Error("it runs again") })
		d.client.Stall()
		noticed(t, handler)
		time.Sleep(time.Minute)
		d.client.Heal()
		waiting := make(chan timed)
		go func() { waiting <- post(handler, "busy") }()
		time.Sleep(10 * time.Second)
		finish()
		a := <-waiting
		require.Equal(t, http.StatusCreated, a.status, "a replay")
		require.Equal(t, 10*time.Second, a.took)
	})
}

// A duplicate that claims its key without a read waits for the attempt in progress as long as Wait, not
// StoreTimeout: etcd has answered its claim.
func TestWaiterThatWasClaimedFirst(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		go post(on[1].behind(&idemhttp.Options{}, func(w http.ResponseWriter, r *http.Request) { time.Sleep(10 * time.Second); created(w, r) }), "busy")
		synctest.Wait()
		handler := on[0].behind(&idemhttp.Options{Wait: 20 * time.Second, Each: func(*http.Request) []idempotency.Option {
			return []idempotency.Option{idempotency.LikelyNew()}
		}}, func(http.ResponseWriter, *http.Request) { t.Error("it runs again") })
		a := post(handler, "busy")
		require.Equal(t, http.StatusCreated, a.status, "a replay")
		require.Equal(t, 10*time.Second, a.took)
	})
}
