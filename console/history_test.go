package console

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/record"
)

// known returns the values that are known, with their places.
func known(values []float64) map[int]float64 {
	out := map[int]float64{}
	for i, v := range values {
		if !math.IsNaN(v) {
			out[i] = v
		}
	}
	return out
}

// The past of a queue has a value for each moment at which the console has looked, a gap where it has not, and nothing
// that is older than an hour.
func TestHistory(t *testing.T) {
	t.Parallel()
	f := fill(t)
	charge := f.space.Queue(keyspace.Semaphore, "charge")
	f.put(charge.Limit, record.Limit{Limit: 1}.Encode(), 0)
	h := &history{every: sampleEvery}
	start := time.UnixMilli(1_700_000_000_000).Truncate(sampleEvery)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * sampleEvery) }
	look := func(n int) {
		f.Settle(at(n).UnixMilli())
		h.sample(f.State, at(n))
	}
	look(0)
	for n := range 3 {
		f.request(charge, n, at(0).Unix())
	}
	look(1)
	f.end(charge, 0)
	f.end(charge, 1)
	look(2)
	f.end(charge, 2)
	look(10) // nobody has looked for two minutes
	look(11)
	p, ok := h.of("semaphore/charge", at(11))
	require.True(t, ok)
	last := moments - 1
	require.Equal(t, map[int]float64{last - 11: 0, last - 10: 1, last - 9: 1, last - 1: 0, last: 0}, known(p.used))
	require.Equal(t, map[int]float64{last - 11: 0, last - 10: 2, last - 9: 0, last - 1: 0, last: 0}, known(p.waiting))
	require.Equal(t, map[int]float64{last - 11: 0, last - 10: 15, last - 9: 0, last - 1: 0, last: 0}, known(p.wait))
	require.Equal(t, map[int]float64{last - 10: 0, last - 9: 2.0 / 15, last: 0}, map[int]float64{last - 10: p.ended[last-10], last - 9: math.Round(p.ended[last-9]*15) / 15, last: p.ended[last]})
	require.Len(t, known(p.ended), 3, "after a gap it is not known what has ended in how long")
	require.Equal(t, 1.0, p.limit[last])

	_, ok = h.of("semaphore/none", at(11))
	require.False(t, ok)
	p, ok = h.of("semaphore/charge", at(11+moments/2))
	require.True(t, ok)
	require.Len(t, known(p.used), 5)
	_, ok = h.of("semaphore/charge", at(12+moments))
	require.False(t, ok, "an hour later nothing is known")

	// What does not change takes no memory, and what is gone is forgotten.
	for n := 12; n < 12+2*moments; n++ {
		look(n)
	}
	require.Len(t, h.tracks["semaphore/charge"], 1)
	f.delete(charge.Limit)
	for n := 12 + 2*moments; n < 14+4*moments; n++ {
		look(n)
	}
	require.Empty(t, h.tracks)
}

// Only permits count as served: not waiters that leave, and no foreign keys. A queue whose holder hangs serves nothing,
// however many give up.
func TestServed(t *testing.T) {
	t.Parallel()
	f := fill(t)
	charge := f.space.Queue(keyspace.Semaphore, "charge")
	f.put(charge.Limit, record.Limit{Limit: 2}.Encode(), 0)
	for n := range 6 {
		f.request(charge, n, 1)
	}
	f.put(charge.Range+"stray", "x", 0)
	f.Settle(1000)
	served := func() int { return f.TakeServed()["semaphore/charge"] }
	f.request(charge, 6, 2)
	f.end(charge, 2) // the oldest waiter gives up
	f.end(charge, 6) // one that has just come
	f.delete(charge.Range + "stray")
	require.Zero(t, served())
	f.end(charge, 0)
	f.end(charge, 3) // it was admitted in place of the first one
	require.Equal(t, 2, served())
	f.end(charge, 5)
	require.Zero(t, served())
	f.Settle(2000)
	f.end(charge, 1)
	f.end(charge, 4)
	f.request(charge, 7, 3) // it comes, holds and ends between two looks
	f.end(charge, 7)
	require.Equal(t, 3, served())
}

// The memory of the history is bounded by names and by moments.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := &history{every: sampleEvery, tracks: map[string][]sample{}}
	for n := range 10 * moments {
		h.add("busy", sample{used: int32(n)}, int64(n), 1)
	}
	require.LessOrEqual(t, len(h.tracks["busy"]), moments+1)
	require.LessOrEqual(t, cap(h.tracks["busy"]), 2*(moments+1)+16)
	for n := range mostTracks + 10 {
		h.add(time.Duration(n).String(), sample{used: 1}, 1, 1)
	}
	require.Len(t, h.tracks, mostTracks)
}

// A line has steps, and a gap where a value is not known.
func TestDrawn(t *testing.T) {
	t.Parallel()
	unknown := math.NaN()
	line, area := drawn([]float64{0, 0, 5, unknown, 10, 10}, 10)
	require.Equal(t, "M0 39H80V20.5H120M160 2H240", line)
	require.Equal(t, "M0 40V39H80V20.5H120V40ZM160 40V2H240V40Z", area)
	line, area = drawn([]float64{unknown, unknown}, 10)
	require.Empty(t, line+area)
	c := chartOf("Used", []float64{1, 4, 2}, []float64{3, 3, 3}, func(v float64) string { return lasted(time.Duration(v) * time.Second) })
	require.Equal(t, []string{"2 s", "4 s"}, []string{c.Now, c.Most})
	require.NotEmpty(t, c.Limit)
	require.Empty(t, chartOf("Used", []float64{1}, []float64{300}, func(float64) string { return "" }).Limit, "a limit that is far away would flatten the line")
}

// The trend of a list has few steps, each as high as the highest moment in it.
func TestTrend(t *testing.T) {
	t.Parallel()
	p := past{used: make([]float64, moments), waiting: make([]float64, moments)}
	for i := range moments {
		p.used[i], p.waiting[i] = float64(i%2), 0
	}
	require.Equal(t, "M0 40V2H240V40Z", trendOf(p))
	for i := range moments {
		p.used[i] = float64(i % 7)
	}
	require.Less(t, len(trendOf(p)), 16*trendSteps)
}

// About how long a waiter waits is known from what has ended lately.
func TestTurn(t *testing.T) {
	t.Parallel()
	ended := make([]float64, moments)
	for i := range ended {
		ended[i] = math.NaN()
	}
	require.Zero(t, past{ended: ended}.rate(sampleEvery))
	ended[moments-1], ended[moments-2] = 1, 3
	rate := past{ended: ended}.rate(sampleEvery)
	require.Equal(t, 2.0, rate)
	require.Equal(t, "2 per second were served in the last minutes: the last of those that wait waits about 5 s more.", turn(10, rate))
	require.Empty(t, turn(0, rate))
	require.Equal(t, "1 s", wait(1, 100))

	// A412: of one permit in five minutes the page showed 6 per minute, and ten seconds of waiting.
	for i := range ended {
		ended[i] = 0
	}
	ended[moments-3] = 1.0 / 15
	rate = past{ended: ended}.rate(sampleEvery)
	require.InDelta(t, 1/300., rate, 1e-4)
	require.Equal(t, "5 m 0 s", wait(1, rate))
	require.Equal(t, "12 per hour were served in the last minutes: the last of those that wait waits about 10 m 0 s more.", turn(2, rate))
	require.Equal(t, "11 per minute", rateBy(0.1777777, 2))
	require.Equal(t, "120 per second", rateBy(123.4, 2))
	require.Empty(t, turn(10, 0))
}

// The page of a queue says of each waiter about when it is its turn, also on the second page of waiters.
func TestTurnOfEach(t *testing.T) {
	t.Parallel()
	c := &console{history: history{every: sampleEvery, tracks: map[string][]sample{}}}
	now := c.history.number(time.Now())
	for n := now - 3; n <= now; n++ {
		c.history.seen[n%moments], c.history.last = n, n
		c.history.add("semaphore/charge", sample{used: 1, waiting: 3, limit: 1}, n, 2)
	}
	p := queuePage{Waiting: 250, Waiters: []requestRow{{nth: 101}, {ForTotal: true}, {nth: 102}}}
	s := subject{kind: "semaphore", name: "charge"}
	p.remember(c, s, quality{asOf: time.Now()})
	require.Equal(t, []string{"51 s", "", "51 s"}, []string{p.Waiters[0].Turn, p.Waiters[1].Turn, p.Waiters[2].Turn})
	require.Contains(t, p.Turn, "about 2 m 5 s more")
	paused := queuePage{Waiting: 1, Waiters: []requestRow{{nth: 1}}, Paused: true}
	paused.remember(c, s, quality{asOf: time.Now()})
	require.Empty(t, paused.Turn+paused.Waiters[0].Turn)
}

// The charts of a page end with what the page shows, not with the latest sample. In an outage of etcd they end when it has
// answered last, with the time of that in place of "now", and nothing is promised to a waiter.
func TestChartsEndWithThePage(t *testing.T) {
	t.Parallel()
	c := &console{history: history{every: sampleEvery, tracks: map[string][]sample{}}}
	asOf := time.UnixMilli(1_700_000_000_000).Truncate(sampleEvery).Add(14 * time.Second)
	last := c.history.number(asOf)
	for n := last - 3; n <= last; n++ {
		c.history.seen[n%moments], c.history.last = n, n
		c.history.add("limiter/api", sample{used: 1, limit: 6}, n, 2)
	}
	now := func(p queuePage) (shown []string) {
		for _, chart := range p.Charts {
			shown = append(shown, chart.Now)
		}
		return shown
	}
	s := subject{kind: "limiter", name: "api"}
	page := queuePage{Used: 6, Most: 6, Waiting: 2, waitingHere: 2, oldestWait: asOf.Add(-9 * time.Second), Waiters: []requestRow{{nth: 1}, {nth: 2}}}
	confirmed := page
	confirmed.Waiters = slices.Clone(page.Waiters)
	confirmed.remember(c, s, quality{asOf: asOf})
	require.Equal(t, []string{"6", "2", "9 s", "2/s"}, now(confirmed))
	require.Equal(t, "Used in the last hour: 6 now, 6 the highest", confirmed.Charts[0].Description)
	require.Contains(t, confirmed.Charts[0].Line, "H228V2H240", "the line ends at the limit, one moment wide")
	require.NotEmpty(t, confirmed.Turn)
	require.Zero(t, confirmed.Charts[0].Until)

	old := page
	old.remember(c, s, quality{asOf: asOf, unconfirmed: "etcd has not answered"}) // however late that is shown
	require.Equal(t, now(confirmed), now(old))
	require.Equal(t, confirmed.Charts[0].Line, old.Charts[0].Line)
	require.Equal(t, []time.Time{asOf, asOf}, []time.Time{old.Charts[0].Until, old.Charts[3].Until})
	require.Equal(t, "Waiting in the last hour: 2 at 22:13:29 UTC, 2 the highest", old.Charts[1].Description)
	require.Empty(t, old.Turn+old.Waiters[0].Turn)

	for n := last + 1; n <= last+100; n++ { // the watch has gone on, and what the page shows was read before
		c.history.seen[n%moments], c.history.last = n, n
		c.history.add("limiter/api", sample{used: 5, limit: 6}, n, 4)
	}
	before := page
	before.remember(c, s, quality{asOf: asOf, unconfirmed: "the leases of the holders were not read"})
	require.Equal(t, []string{"6", "2", "9 s", "2/s"}, now(before))
	require.Equal(t, confirmed.Charts[0].Line, before.Charts[0].Line)

	key := queuePage{Waiting: 3, waitingHere: 1} // two of them are admitted at their key, and wait for the total
	c.history.add("limiter/api/acme", sample{used: 1}, last, 0)
	key.remember(c, subject{kind: "limiter", name: "api", key: "acme"}, quality{asOf: asOf})
	require.Equal(t, []string{"Waiting at this key", "1"}, []string{key.Charts[1].Label, key.Charts[1].Now})
}

// A rate is shown by the interval in which it allows one call at least, and never in powers of ten.
func TestRateText(t *testing.T) {
	t.Parallel()
	for perSecond, want := range map[float64]string{1e6: "1000000 per second", 12345.5: "12346 per second", 20: "20 per second", 2.5: "2.5 per second", 0.5: "30 per minute", 0.3: "18 per minute", 1.0 / 3600: "1 per hour", 1e-5: "0.864 per day"} {
		require.Equal(t, want, rateText(perSecond))
	}
}

// The runs of a job are drawn by process: the worse, the higher.
func TestStrip(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	run := func(owner, state string, ago, took, late time.Duration, bad bool) runRow {
		start := now.Add(-ago)
		return runRow{Owner: owner, State: state, Start: start, end: start.Add(took), Tick: start.Add(-late), Bad: bad, Took: took.String()}
	}
	require.Nil(t, stripOf(nil, now))
	s := stripOf([]runRow{
		run("b", "done", time.Hour, time.Minute, 0, false), run("a", "failed", 2*time.Hour, time.Minute, 0, true),
		run("a", "done", 50*time.Hour, time.Hour, time.Minute, false), run("a", "done", 8*24*time.Hour, time.Hour, 0, false),
	}, now)
	require.Len(t, s.Lanes, 2)
	require.Equal(t, "a: 2 runs, of which 1 have failed or were lost", s.Lanes[0].Description)
	require.Equal(t, []string{"failed", "0", "20"}, []string{s.Lanes[0].Runs[0].State, s.Lanes[0].Runs[0].Y, s.Lanes[0].Runs[0].Height})
	require.Equal(t, []string{"late", "7"}, []string{s.Lanes[0].Runs[1].State, s.Lanes[0].Runs[1].Y})
	require.Contains(t, s.Lanes[0].Runs[1].Title, "started 1 m 0 s behind its tick")
	require.Equal(t, "done", s.Lanes[1].Runs[0].State)
	var many []runRow
	for n := range 11 {
		many = append(many, run(fmt.Sprint(n%10), "done", time.Hour, time.Minute, 0, false))
	}
	require.Equal(t, []int{mostLanes, 2}, []int{len(stripOf(many, now).Lanes), stripOf(many, now).More})
	require.Equal(t, s, stripOf([]runRow{
		run("b", "done", time.Hour, time.Minute, 0, false), run("a", "failed", 2*time.Hour, time.Minute, 0, true),
		run("a", "done", 50*time.Hour, time.Hour, time.Minute, false),
	}, now.Add(time.Second).Add(-time.Second)), "what is older than a week is left out")
}

// BenchmarkHistory adds one moment of 8,000 queues, all of which have changed, and reports what an hour of that takes.
func BenchmarkHistory(b *testing.B) {
	space, err := keyspace.New("/etcdkit", "shop")
	require.NoError(b, err)
	state := fleet.NewState(space, true)
	for i := range mostTracks {
		q := space.Queue(keyspace.Semaphore, fmt.Sprintf("name-%04d", i))
		state.Put(&mvccpb.KeyValue{Key: []byte(q.Limit), Value: []byte(record.Limit{Limit: 10}.Encode()), CreateRevision: 1, ModRevision: 1}, 1000)
	}
	state.Settle(1000)
	h := &history{every: sampleEvery}
	at := time.UnixMilli(1_700_000_000_000)
	for n := 0; b.Loop(); n++ {
		for _, q := range state.Queues {
			q.Now.Used = int64(n % 10)
		}
		h.sample(state, at.Add(time.Duration(n)*sampleEvery))
	}
	size := 0
	for _, track := range h.tracks {
		size += cap(track) * int(unsafe.Sizeof(sample{}))
	}
	b.ReportMetric(float64(size)/(1<<20), "MiB")
}
