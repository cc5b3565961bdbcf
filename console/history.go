package console

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Bounds of the history: an hour of at most so many names, of 24 bytes for each moment in which something has changed.
// At most it takes 46 MiB.
const (
	sampleEvery = 15 * time.Second
	moments     = 240 // of which an hour has so many
	mostTracks  = 8000
)

// history has the recent past of the queues, as far as the console has followed them. It outlives the watch: while no page
// is read there is a gap.
type history struct {
	every time.Duration // between two moments

	mu     sync.Mutex
	seen   [moments]int64 // the moments that were sampled, each at its number modulo moments
	last   int64          // the latest one
	tracks map[string][]sample
	led    map[string]time.Time // when an election was seen to be led last
}

// sample is what a queue is from a moment on.
type sample struct {
	at                   uint32 // the number of the moment
	used, waiting, limit int32
	wait                 uint32  // of the oldest waiter, in seconds
	ended                float32 // permits in a second since the moment before; below 0 if it is not known
}

func (s sample) same(other sample) bool {
	s.at = other.at
	return s == other
}

// follow samples the queues until ctx ends.
func (h *history) follow(ctx context.Context, of *fleet.Fleet) {
	if of.Await(ctx, 1) != nil {
		// the first answer comes later, or never
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.every):
		}
	}
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for {
		of.View(func(s *fleet.State, m fleet.Meta) {
			if s != nil && m.Up {
				h.sample(s, time.Now())
			}
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// number returns the number of the moment of a time.
func (h *history) number(at time.Time) int64 { return at.UnixNano() / int64(h.every) }

// sample adds the state of a moment.
func (h *history) sample(s *fleet.State, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.number(now)
	if at == h.last {
		return // what has ended counts in the next one
	}
	served := s.TakeServed()
	passed := at - h.last // a moment is skipped if the clock of the samples is at its edge
	if passed == 2 {
		h.seen[(at-1)%moments] = at - 1
	}
	h.last, h.seen[at%moments] = at, at
	if h.tracks == nil {
		h.tracks = map[string][]sample{}
	}
	h.lead(s, now)
	there := map[string]bool{}
	eachQueue(s, func(name subject, of *fleet.Queue) {
		one := sampleOf(of.Now, now)
		there[name.String()] = true
		h.add(name.String(), one, at, h.perSecond(served[name.String()], passed))
	})
	for name := range h.tracks {
		if !there[name] { // it is not in use
			h.add(name, sample{}, at, h.perSecond(served[name], passed))
		}
	}
}

// ledFor is how long the name of an election is kept that is led no more.
const ledFor = time.Hour

// lead takes which elections are led. Of one without a candidate etcd has nothing: its name is kept here.
func (h *history) lead(s *fleet.State, now time.Time) {
	for name, at := range h.led {
		if now.Sub(at) > ledFor {
			delete(h.led, name)
		}
	}
	if h.led == nil {
		h.led = map[string]time.Time{}
	}
	for id, of := range s.Queues {
		if _, known := h.led[id.Name]; id.Kind == keyspace.Election && of.Now.Used > 0 && (known || len(h.led) < mostTracks) {
			h.led[id.Name] = now
		}
	}
}

// gone returns the elections that were seen to be led within the hour and are led no more, with the time at which they were last.
func (h *history) gone(s *fleet.State, now time.Time) map[string]time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]time.Time{}
	for name, at := range h.led {
		if of := s.Queues[fleet.QueueID{Kind: keyspace.Election, Name: name}]; (of == nil || of.Now.Used == 0) && now.Sub(at) <= ledFor {
			out[name] = at
		}
	}
	return out
}

// perSecond returns the rate of what has ended in so many moments; it is not known after a gap.
func (h *history) perSecond(n int, passed int64) float32 {
	if passed > 2 {
		return -1
	}
	return float32(float64(n) / (float64(passed) * h.every.Seconds()))
}

func sampleOf(n fleet.Summary, now time.Time) (s sample) {
	bounded := func(n int64) int32 { return int32(min(n, math.MaxInt32)) }
	s.used, s.waiting = bounded(n.Used), bounded(int64(n.Waiting))
	if n.Known {
		s.limit = bounded(n.Limit)
	}
	if n.OldestWait > 0 {
		s.wait = uint32(max(0, min(now.Unix()-n.OldestWait/1000, math.MaxInt32)))
	}
	return s
}

// add adds a moment of one queue, if anything has changed, and removes those that are older than an hour. A queue of
// which nothing is left is forgotten.
func (h *history) add(name string, one sample, at int64, ended float32) {
	track, known := h.tracks[name]
	if !known && len(h.tracks) >= mostTracks {
		return
	}
	one.at, one.ended = uint32(at), ended
	if len(track) == 0 || !track[len(track)-1].same(one) {
		track = append(track, one)
	}
	old := 0
	for old+1 < len(track) && int64(track[old+1].at) <= at-moments {
		old++ // the next one begins before the hour
	}
	track = track[old:]
	if last := track[len(track)-1]; len(track) == 1 && last.used+last.waiting+last.limit == 0 && last.ended <= 0 && int64(last.at) <= at-moments {
		delete(h.tracks, name)
		return
	}
	if cap(track) > 2*len(track)+16 {
		track = append([]sample(nil), track...)
	}
	h.tracks[name] = track
}

// past is the recent past of a queue, one value for each moment, the latest one last. What is not known is NaN.
type past struct {
	used, waiting, limit, wait, ended []float64
}

// of returns the past of a queue up to a time, as of which its page is true; ok is false if nothing is known of it.
func (h *history) of(name string, asOf time.Time) (p past, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	track := h.tracks[name]
	end := h.number(asOf)
	if ahead := end - h.last; ahead > 0 && ahead <= 2 {
		end = h.last // the next moment is yet to come
	}
	i := -1
	for at := end - moments + 1; at <= end; at++ {
		for i+1 < len(track) && int64(track[i+1].at) <= at {
			i++
		}
		unknown := math.NaN()
		values := [5]float64{unknown, unknown, unknown, unknown, unknown}
		if i >= 0 && h.seen[at%moments] == at {
			s := track[i]
			values = [5]float64{float64(s.used), float64(s.waiting), float64(s.limit), float64(s.wait), float64(s.ended)}
			if s.ended < 0 {
				values[4] = unknown
			}
			ok = true
		}
		for j, to := range []*[]float64{&p.used, &p.waiting, &p.limit, &p.wait, &p.ended} {
			*to = append(*to, values[j])
		}
	}
	return p, ok
}

// with returns the past with the state that a page shows as its end, in place of its oldest moment: the latest sample is up
// to a quarter of a minute older than what is beside it. How fast permits end is known of whole moments alone.
func (p past) with(used, waiting, limit, wait float64) past {
	shifted := func(values []float64, v float64) []float64 { return append(slices.Clone(values[1:]), v) }
	return past{shifted(p.used, used), shifted(p.waiting, waiting), shifted(p.limit, limit), shifted(p.wait, wait), shifted(p.ended, p.ended[len(p.ended)-1])}
}

// recently is how long the rate is taken of at which a queue moves on.
const recently = 5 * time.Minute

// rate returns how many permits a second have ended in the last minutes; 0 if that is not known.
func (p past) rate(every time.Duration) float64 {
	n, sum := 0, 0.0
	for _, v := range p.ended[max(0, len(p.ended)-int(recently/every)):] {
		if !math.IsNaN(v) {
			n++
			sum += v
		}
	}
	if n < 2 || sum == 0 {
		return 0
	}
	return sum / float64(n)
}

// turn says about how long the last of so many waiters waits, by a rate; "" if that is not known.
func turn(waiting int, rate float64) string {
	if rate == 0 || waiting == 0 {
		return ""
	}
	return fmt.Sprintf("%s were served in the last minutes: the last of those that wait waits about %s more.", rateBy(rate, 2), wait(waiting, rate))
}

// wait returns about how long it takes until the nth of those that wait is served, by a rate: a second at least.
func wait(nth int, rate float64) string {
	return lasted(time.Duration(max(1, math.Round(float64(nth)/rate))) * time.Second)
}
