package virtual

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	line "github.com/etcdkit/etcdkit/internal/rank"
)

// sampling is 120 processes that wait behind a limit of 100, of which one process holds 90 permits. Those beyond the
// first 47 sleep by a sample.
type sampling struct {
	on      []*desk // the one that holds, ten with a permit each, and those that wait
	held    chan int
	largest int // how many of the large one's permits there are
}

const sampledLimit, sampledWaiting = 100, 120

// samples has f find them asleep, without looks by the clock.
func samples(t *testing.T, f func(t *testing.T, s sampling)) {
	t.Helper()
	const others = 10
	h := line.StoredLimit
	h.Least, h.Most, h.Look = sampledLimit/4, sampledLimit/4, time.Hour
	bubble(t, 1+others+sampledWaiting, func(t *testing.T, on []*desk) {
		s := sampling{on: on, held: make(chan int, sampledWaiting), largest: sampledLimit - others}
		for i := range sampledLimit {
			d := on[max(0, i+1-s.largest)]
			d.get(d.semaphore(sampledLimit))
		}
		for i, d := range s.waiting() {
			d.close(time.Second)
			d.openIn(line.WithHorizon(t.Context(), h), concurrency.SessionOptions{})
			sem := d.semaphore(sampledLimit)
			go func() {
				if _, err := sem.Acquire(within(t, time.Hour)); err == nil {
					s.held <- i
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.Empty(t, s.held)
		f(t, s)
	})
}

func (s sampling) waiting() []*desk { return s.on[len(s.on)-sampledWaiting:] }

// admitted asserts that so many hold within a time, in their order.
func (s sampling) admitted(t *testing.T, n int, within time.Duration) {
	t.Helper()
	time.Sleep(within)
	require.Len(t, s.held, n)
	for range n {
		require.Less(t, <-s.held, n, "in their order")
	}
}

// W7: a process ends that holds 90 of 100 permits. As many requests fit then, and half of them sleep by a sample: all
// are admitted at once.
func TestTrapW7MassReleaseBySample(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, s sampling) {
		s.on[0].server.Expire(s.on[0].session.Lease())
		s.admitted(t, s.largest, 10*time.Millisecond)
	})
}

// A191: the watches of the samples end, since the connections break and etcd has forgotten the history. Each sleeping
// request begins another sample, and a mass release admits all that fit.
func TestSamplesEnd(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, s sampling) {
		s.on[0].server.Compact()
		for _, d := range s.waiting() {
			d.client.Break()
		}
		time.Sleep(5 * time.Second)
		s.on[0].server.Expire(s.on[0].session.Lease())
		s.admitted(t, s.largest, 10*time.Millisecond)
	})
}

// A191: the permits go while no watch of a sample reports it. When its watch has ended, a request reads its place.
func TestMassReleaseWithoutSamples(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, s sampling) {
		for _, d := range s.waiting() {
			d.client.Refuse()
		}
		s.on[0].server.Expire(s.on[0].session.Lease())
		time.Sleep(2 * time.Second)
		for _, d := range s.waiting() {
			d.client.Heal()
		}
		s.admitted(t, s.largest, 10*time.Second)
	})
}

// W11: a limit that is raised admits those that sleep by a sample, and one that is lowered does not.
func TestLimitChangesUnderSamples(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, s sampling) {
		operator := s.on[0].semaphore(sampledLimit)
		require.NoError(t, operator.SetLimit(t.Context(), 40))
		time.Sleep(10 * time.Second)
		require.Empty(t, s.held)
		require.NoError(t, operator.SetLimit(t.Context(), 2*sampledLimit))
		s.admitted(t, sampledLimit, 10*time.Second)
	})
}

// W13: the watches of a sample are replaced within half a minute, while nothing happens.
func TestTrapW13SamplesStayYoung(t *testing.T) {
	t.Parallel()
	samples(t, func(t *testing.T, s sampling) {
		last := s.waiting()[sampledWaiting-1]
		var parts atomic.Int64
		last.client.Inject(func(m etcdfake.Message) etcdfake.Fault {
			if r, ok := m.Body.(*pb.WatchRequest); ok {
				if c := r.GetCreateRequest(); c != nil && strings.HasSuffix(string(c.RangeEnd), "\x00") {
					parts.Add(1)
				}
			}
			return etcdfake.Fault{}
		})
		for range 4 {
			before := parts.Load()
			time.Sleep(30 * time.Second)
			require.GreaterOrEqual(t, parts.Load()-before, int64(line.StoredLimit.Parts))
		}
	})
}
