package rate_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/rate"
)

// fleet is some processes that share a rate, on a store that never errs about who holds a share.
type fleet struct {
	now       time.Time // the true time
	processes []*process
	free      int64
	current   rate.Division // that is stored
	spans     []check.Span  // when tokens were taken
}

// process is one process, whose clock may be fast or slow.
type process struct {
	rate.Bucket
	ppm    float64
	paused bool
	known  rate.Division // what it has read
	// The store takes its shares back at expires, if it does not renew its lease before; it trusts
	// its lease until some time before that.
	expires, trusts time.Time
}

const ttl, margin = 15 * time.Second, 3 * time.Second

var epoch = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// clock returns what the clock of a process shows.
func (f *fleet) clock(p *process) time.Time {
	return epoch.Add(time.Duration(float64(f.now.Sub(epoch)) * (1 + p.ppm/1e6)))
}

func (f *fleet) renew(p *process) {
	p.trusts, p.expires = f.now.Add(ttl-margin), f.now.Add(ttl)
}

// pass lets time pass: leases expire in the store, whatever their processes know.
func (f *fleet) pass(d time.Duration) {
	for third := ttl / 3; d > third; d -= third {
		f.pass(third) // leases are renewed that often
	}
	f.now = f.now.Add(d)
	for _, p := range f.processes {
		if !p.paused && f.now.Before(p.trusts) {
			f.renew(p)
		}
		if p.Held() > 0 && !f.now.Before(p.expires) {
			f.free += p.Held()
			p.expires = f.now.Add(1000 * time.Hour) // the store has taken them
		}
	}
}

// resume has a process go on. It may take a token before it notices that it has lost its lease.
func (f *fleet) resume(p *process, first bool) {
	p.paused = false
	if first {
		f.take(p)
	}
	if !f.now.Before(p.trusts) {
		p.Set(f.clock(p), 0, p.known)
		f.renew(p)
	}
}

// take takes all tokens that there are.
func (f *fleet) take(p *process) (n int) {
	for !p.paused && p.Take(f.clock(p), f.now.Before(p.trusts)) {
		f.spans = append(f.spans, check.Span{From: f.now, To: f.now})
		n++
	}
	return n
}

// TestFleet: whatever a fleet does, in no window does it take more than the rate and the burst allow.
// The rate may be raised at any time; windows from before a raise are judged by the raised rate.
func TestFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		per := rapid.SampledFrom([]float64{0.3, 1, 5, 40, 1000}).Draw(t, "rate")
		burst := rapid.Int64Range(1, 70).Draw(t, "burst")
		f := &fleet{now: epoch, current: rate.Divide(rate.Rate{PerSecond: per, Burst: burst})}
		f.free = f.current.Shares
		for range rapid.IntRange(1, 4).Draw(t, "processes") {
			p := &process{ppm: rapid.Float64Range(-1000, 1000).Draw(t, "ppm"), known: f.current}
			f.renew(p)
			f.processes = append(f.processes, p)
		}
		one := func(t *rapid.T) *process {
			return f.processes[rapid.IntRange(0, len(f.processes)-1).Draw(t, "process")]
		}
		live := func(p *process) bool { return !p.paused && f.now.Before(p.trusts) }
		gain := func(p *process, n int64) {
			f.free -= n
			p.Set(f.clock(p), p.Held()+n, p.known)
		}
		giveBack := func(p *process, n int64) {
			p.Set(f.clock(p), p.Held()-n, p.known)
			f.free += n
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"pass": func(t *rapid.T) {
				f.pass(time.Duration(rapid.Int64Range(1, int64(3*time.Second)).Draw(t, "for")))
			},
			"wait": func(t *rapid.T) { f.pass(20 * time.Second) }, // buckets fill, leases of paused ones end
			"gain": func(t *rapid.T) {
				if p := one(t); live(p) && f.free > 0 {
					gain(p, rapid.Int64Range(1, f.free).Draw(t, "shares"))
				}
			},
			"return": func(t *rapid.T) {
				if p := one(t); live(p) && p.Held() > 0 {
					giveBack(p, rapid.Int64Range(1, p.Held()).Draw(t, "shares"))
				}
			},
			"hand over": func(t *rapid.T) { // shares with full buckets, and all that is taken at once
				from, to := one(t), one(t)
				if !live(from) || !live(to) || f.free+from.Held() == 0 {
					return
				}
				gain(from, f.free)
				f.pass(20 * time.Second)
				if rapid.Bool().Draw(t, "takes before") {
					f.take(from)
				}
				n := rapid.Int64Range(1, from.Held()).Draw(t, "shares")
				giveBack(from, n)
				gain(to, n)
				if rapid.Bool().Draw(t, "fills") {
					f.pass(20 * time.Second)
				}
				f.take(to)
				f.take(from)
			},
			"stand still": func(t *rapid.T) { // with a full bucket, until others have its shares
				still, to := one(t), one(t)
				if still == to || !live(still) || !live(to) {
					return
				}
				gain(still, f.free)
				f.pass(20 * time.Second)
				still.paused = true
				f.pass(ttl)
				gain(to, f.free)
				f.pass(20 * time.Second)
				f.take(to)
				f.resume(still, true)
			},
			"take":  func(t *rapid.T) { f.take(one(t)) },
			"pause": func(t *rapid.T) { one(t).paused = true },
			"resume": func(t *rapid.T) {
				if p := one(t); p.paused {
					f.resume(p, rapid.Bool().Draw(t, "takes first"))
				}
			},
			"raise": func(t *rapid.T) {
				if burst > 200 || per > 2000 {
					return
				}
				more := rapid.Int64Range(0, 40).Draw(t, "burst")
				to := rate.Rate{PerSecond: per * rapid.Float64Range(1, 2).Draw(t, "times"), Burst: burst + more}
				next, weight := f.current.Change(to, 1)
				if weight > 1 { // TestDividedAnew
					return
				}
				per, burst = to.PerSecond, to.Burst
				f.free += next.Shares - f.current.Shares
				f.current = next
			},
			"learn": func(t *rapid.T) {
				if p := one(t); live(p) {
					p.known = f.current
					p.Set(f.clock(p), p.Held(), p.known)
				}
			},
		})
		require.NoError(t, check.Rate(f.spans, per, int(burst)))
	})
}

// TestFleetUsesItsRate: processes that always want more take almost all of the rate, whichever of
// them holds the shares.
func TestFleetUsesItsRate(t *testing.T) {
	t.Parallel()
	d := rate.Divide(rate.Rate{PerSecond: 100, Burst: 20})
	f := &fleet{now: epoch, current: d}
	n := 0
	for i := range int64(4) {
		p := &process{known: d, ppm: float64(i*500) - 1000}
		f.renew(p)
		p.Set(f.clock(p), d.Shares/4, d)
		f.processes = append(f.processes, p)
	}
	for range 100 * 60 {
		f.pass(10 * time.Millisecond)
		for _, p := range f.processes {
			n += f.take(p)
		}
	}
	require.NoError(t, check.Rate(f.spans, 100, 20))
	require.Greater(t, n, 100*60*99/100)
}
