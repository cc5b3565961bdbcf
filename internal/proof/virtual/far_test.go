package virtual

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	line "github.com/etcdkit/etcdkit/internal/rank"
)

// sleeper is a process whose requests are far from their admission, and what it sends to etcd.
type sleeper struct {
	*desk
	lose string // the first watch of a key that contains this is not answered

	mu      sync.Mutex
	asked   []string             // watches that etcd has not confirmed, in order
	watches map[int64]aliveWatch // by the IDs of the latest stream
	oldest  map[string]time.Duration
	gaps    []string // keys of requests whose watch has ended when there was no other one of the key
	created int      // watches of single requests
	opened  int      // streams of watches
	calls   int      // other requests, but for renewals
}

type aliveWatch struct {
	key   string
	since time.Time
}

// behind returns a process behind a line of requests of another process, which hold all permits of the
// semaphore or wait. A nil horizon is that of production.
func behind(on []*desk, h *line.Horizon, limit, requests int) (*sleeper, *crowd) {
	d := on[1]
	d.t.Helper()
	d.close(time.Second)
	time.Sleep(time.Second) // until the stream of the former session's watches has ended
	f := &sleeper{desk: d, watches: map[int64]aliveWatch{}, oldest: map[string]time.Duration{}}
	d.client.Inject(f.meet)
	ctx := d.t.Context()
	if h != nil {
		ctx = line.WithHorizon(ctx, *h)
	}
	var err error
	d.session, err = concurrency.NewSession(ctx, d.client.Client, "test", &concurrency.SessionOptions{TTL: ttl, Margin: margin, Prefix: prefix})
	require.NoError(d.t, err)

	c := &crowd{desk: on[0], sem: on[0].semaphore(limit), giveUp: map[string]context.CancelFunc{}}
	for range requests {
		c.join()
	}
	return f, c
}

// meet counts a message. It changes nothing, but for the watch that is to be lost.
func (f *sleeper) meet(m etcdfake.Message) (fate etcdfake.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch body := m.Body.(type) {
	case *pb.WatchRequest:
		if r := body.GetCreateRequest(); r != nil {
			f.asked = append(f.asked, string(r.Key))
			if isRequest(string(r.Key)) && len(r.RangeEnd) == 0 {
				f.created++
			}
		} else if r := body.GetCancelRequest(); r != nil {
			f.ends(r.WatchId)
		}
	case *pb.WatchResponse:
		if !body.Created {
			break
		}
		key := f.asked[0]
		f.asked = f.asked[1:]
		if f.lose != "" && strings.Contains(key, f.lose) {
			f.lose = ""
			return etcdfake.Fault{DropResponse: true}
		}
		if body.WatchId == 0 { // each stream numbers its watches from 0
			f.opened++
			clear(f.watches)
		}
		f.watches[body.WatchId] = aliveWatch{key, time.Now()}
	case *pb.LeaseKeepAliveRequest, *pb.LeaseKeepAliveResponse:
	default:
		f.calls++
	}
	return etcdfake.Fault{}
}

// ends is for the end of a watch. f.mu is held.
func (f *sleeper) ends(id int64) {
	w, ok := f.watches[id]
	if !ok {
		return // of a former stream
	}
	f.oldest[w.key] = max(f.oldest[w.key], time.Since(w.since))
	delete(f.watches, id)
	for _, other := range f.watches {
		if other.key == w.key {
			return
		}
	}
	if strings.Contains(w.key, "/queue/") { // when a watch of the limit begins, the limit is read
		f.gaps = append(f.gaps, w.key)
	}
}

// isRequest reports whether a key is that of a request.
func isRequest(key string) bool {
	return strings.Contains(key, "/queue/") && !strings.HasSuffix(key, "-")
}

// watched returns the requests that the process watches singly.
func (f *sleeper) watched() (keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watches {
		if isRequest(w.key) {
			keys = append(keys, w.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// sent returns how many requests the process has sent since it was asked last.
func (f *sleeper) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.calls
	f.calls = 0
	return n
}

// counts returns how many watches of single requests and how many streams of watches there were so far.
func (f *sleeper) counts() (created, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.created, f.opened
}

// ask asks for a permit, which it holds until the test ends. The result is the end of the call.
func (f *sleeper) ask(opts ...concurrency.AcquireOption) <-chan error {
	f.t.Helper()
	sem, err := concurrency.NewSemaphore(f.session, queue, 1, &concurrency.SemaphoreOptions{AdoptLimit: true})
	require.NoError(f.t, err)
	end := make(chan error, 1)
	ctx := within(f.t, 10*time.Hour)
	go func() {
		_, err := sem.Acquire(ctx, opts...)
		end <- err
	}()
	synctest.Wait()
	require.Empty(f.t, end, "it waits")
	require.NotEmpty(f.t, f.watched(), "it sleeps")
	return end
}

// crowd is a process with many requests in the queue.
type crowd struct {
	*desk
	sem    *concurrency.Semaphore
	keys   []string                      // of those that live, in order
	giveUp map[string]context.CancelFunc // ends a request, whether it waits or holds
}

// join adds a request, which holds until it is given up.
func (c *crowd) join() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	go func() {
		if p, err := c.sem.Acquire(ctx); err == nil {
			<-ctx.Done()
			_ = p.Release(context.Background())
		}
	}()
	synctest.Wait()
	for _, key := range c.server.Keys(queueRange) {
		if !slices.Contains(c.keys, key) {
			c.keys = append(c.keys, key)
			c.giveUp[key] = cancel
			return
		}
	}
	require.FailNow(c.t, "the request is not in etcd")
}

// leave ends requests.
func (c *crowd) leave(keys ...string) {
	c.t.Helper()
	for _, key := range keys {
		require.Contains(c.t, c.giveUp, key)
		c.giveUp[key]()
	}
	synctest.Wait()
	left := c.server.Keys(queueRange)
	for _, key := range keys {
		require.NotContains(c.t, left, key)
	}
}

// blind is a small horizon without looks by the clock: what wakes a request are the rules.
var blind = line.Horizon{Limits: 1, Least: -1, Most: -1, Large: 1000, Watched: 2, Gone: 2, Look: time.Hour, Renew: time.Hour}

// W6: another process ends a far request. Its call ends at the same moment, whatever its weight: no watch
// of the session's keys covers those of another weight than the first request has.
func TestTrapW6NoticeWakesAFarRequest(t *testing.T) {
	t.Parallel()
	for name, weight := range map[string]int{"as the first": 1, "heavier": 2} {
		for by, end := range map[string]func(ctx context.Context, sem *concurrency.Semaphore, token int64) error{
			"EvictToken": func(ctx context.Context, sem *concurrency.Semaphore, token int64) error {
				return sem.EvictToken(ctx, token, "no more")
			},
			"Evict": func(ctx context.Context, sem *concurrency.Semaphore, _ int64) error {
				return sem.Evict(ctx, "i", "no more")
			},
			"ReleaseID": func(ctx context.Context, sem *concurrency.Semaphore, _ int64) error {
				return sem.ReleaseID(ctx, "i")
			},
		} {
			t.Run(by+", "+name, func(t *testing.T) {
				bubble(t, 2, func(t *testing.T, on []*desk) {
					f, c := behind(on, &blind, 2, 10)
					first := f.ask()
					second := f.ask(concurrency.Weight(weight), concurrency.ID("i"))
					time.Sleep(time.Second)
					st, err := c.sem.Status(t.Context())
					require.NoError(t, err)
					begun := time.Now()
					require.NoError(t, end(t.Context(), c.sem, st.Waiters[len(st.Waiters)-1].Token))
					select {
					case err := <-second:
						require.Error(t, err)
						if by != "ReleaseID" {
							require.ErrorIs(t, err, concurrency.ErrEvicted)
							require.ErrorContains(t, err, "no more")
						}
						require.Equal(t, begun, time.Now())
					case <-time.After(10 * time.Minute):
						require.FailNow(t, "it sleeps on")
					}
					require.Empty(t, first)
					require.NotEmpty(t, f.watched(), "the other one sleeps on")
				})
			})
		}
	}
}

// W9: one of the requests that a far one watches gives up. It reads nothing for that: of many callers that
// give up, each would cost a list for each far request. When two are gone, it lists at once.
func TestTrapW9OneThatGivesUpCostsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		f, c := behind(on, nil, 2, 40)
		end := f.ask()
		watched := f.watched()
		require.Len(t, watched, 4)
		f.sent()
		c.leave(watched[1])
		require.Zero(t, f.sent(), "one is gone")
		c.leave(c.keys[39]) // it is not watched
		require.Zero(t, f.sent(), "another one is gone")
		c.leave(watched[2])
		require.Positive(t, f.sent(), "two are gone")
		require.Empty(t, end)
	})
}

// W13: a far request waits for long, and nothing happens. No watch of the queue gets so old that etcd would
// search a long history for it. W14: a watch of requests ends when there is another one of the same keys.
func TestTrapW13WatchesStayYoung(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]line.Horizon{"stored limit": line.StoredLimit, "fixed limit": line.FixedLimit} {
		t.Run(name, func(t *testing.T) {
			h := of
			h.Look = time.Hour // as in a long queue, where looks are rare
			bubble(t, 2, func(t *testing.T, on []*desk) {
				f, _ := behind(on, &h, 2, 40)
				f.ask()
				for range 600 {
					time.Sleep(time.Second)
					f.mu.Lock()
					for _, w := range f.watches {
						f.oldest[w.key] = max(f.oldest[w.key], time.Since(w.since))
					}
					f.mu.Unlock()
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				seen := 0
				for key, age := range f.oldest {
					switch {
					case !strings.Contains(key, gate):
					case isRequest(key):
						require.LessOrEqual(t, age, 30*time.Second, "a watched request: %s", key)
						seen++
					default:
						require.LessOrEqual(t, age, 40*time.Second, "the own requests and the limit: %s", key)
						seen++
					}
				}
				require.Equal(t, 6, seen, "four requests, the own ones, the limit")
				require.Empty(t, f.gaps, "W14")
			})
		})
	}
}

// W14: the end of the last watch of a stream closes it. However often a request waits and gives up, the watch
// of the session's own range, on the same stream, keeps that open.
func TestTrapW14SessionKeepsItsStream(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		f, _ := behind(on, nil, 2, 40)
		for range 5 {
			require.ErrorIs(t, <-f.ask(concurrency.Wait(10*time.Second)), concurrency.ErrFull)
			time.Sleep(time.Minute)
			require.Empty(t, f.watched())
		}
		_, opened := f.counts()
		require.Equal(t, 1, opened)
	})
}

// W14: the present stream of watches has none but those of a far request, since the session has gone over to
// it after a watch that was not answered, and nothing else has been watched since. It is not closed when
// the request replaces its watches.
func TestTrapW14StreamOfAFarRequestAlone(t *testing.T) {
	t.Parallel()
	h := line.StoredLimit
	h.Renew = time.Hour // the watches of the own keys and of the limit stay on the former stream
	bubble(t, 2, func(t *testing.T, on []*desk) {
		f, _ := behind(on, &h, 2, 40)
		f.ask()
		f.mu.Lock()
		f.lose = "/semaphore/other/"
		f.mu.Unlock()
		other, err := concurrency.NewSemaphore(f.session, "other", 1, nil)
		require.NoError(t, err)
		_, err = other.Acquire(within(t, time.Minute))
		require.NoError(t, err)
		_, err = other.Acquire(within(t, time.Minute)) // it follows the queue of the other semaphore
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute) // what it has followed is followed no longer

		before, opened := f.counts()
		require.Equal(t, 2, opened, "the session has gone over to another stream")
		f.mu.Lock()
		f.gaps = nil
		f.mu.Unlock()
		time.Sleep(10 * time.Minute)
		created, opened := f.counts()
		require.Greater(t, created-before, 4*10, "its watches were replaced")
		require.Equal(t, 2, opened)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Empty(t, f.gaps, "a stream without watches may be closed before the next one is asked for")
	})
}

// W15: all requests before a far one leave, but for those that it watches: they hold, and others would fit.
// It looks within a second, and after some quiet seconds within four.
func TestTrapW15AllButTheWatchedLeave(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct{ quiet, within time.Duration }{
		"at first":           {100 * time.Millisecond, time.Second}, // after the look that the watch of the limit causes
		"after some seconds": {time.Minute, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 2, func(t *testing.T, on []*desk) {
				f, c := behind(on, nil, 5, 50)
				end := f.ask()
				time.Sleep(x.quiet)
				watched := f.watched()
				require.Len(t, watched, 4)
				begun := time.Now()
				c.leave(slices.DeleteFunc(slices.Clone(c.keys), func(key string) bool { return slices.Contains(watched, key) })...)
				require.Subset(t, c.server.Keys(queueRange), watched)
				require.NoError(t, <-end)
				require.LessOrEqual(t, time.Since(begun), x.within)
			})
		})
	}
}
