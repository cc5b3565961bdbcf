package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Turns bounds how many calls of a session at a time ask etcd anew after their
// requests went, in the order in which the calls began. All waiting calls of a session
// lose their requests with its lease, at the same moment. If all of them asked at once,
// the renewals of the next lease would come too late behind them, and that lease would
// be lost, too.
//
// All that calls ask before they wait goes the same way, since a burst of calls can cost a
// lease just as well. There more go at a time, and the first does not wait for others: a
// call that is not one of hundreds notices nothing.
type Turns struct {
	atOnce int           // how many calls ask at the same time
	gather time.Duration // how long, about, the first call waits for those before it

	mu      sync.Mutex
	busy    int
	opening bool    // the first call waits
	waiting []*turn // in the order in which they began
}

type turn struct {
	begun time.Time
	ready chan struct{}
}

const (
	// requeueAtOnce is how many calls ask anew at the same time.
	requeueAtOnce = 32
	// sendsAtOnce is how many calls read or write at the same time. With more a session
	// whose etcd is far away gets more done in a second, and a renewal of its lease may
	// have to wait longer behind them.
	sendsAtOnce = 128
	// maxRest bounds the pause after one of them.
	maxRest = time.Second
	// gatherFor is how long it takes, about, until all waiting calls have noticed that
	// their lease is lost. Sessions that have lost theirs together do not ask in step.
	gatherFor = 50 * time.Millisecond
)

// Enter waits for the call's turn, and returns the function that ends it. It returns
// ctx's error if that ends first.
func (q *Turns) Enter(ctx context.Context, begun time.Time) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if w := q.join(begun); w != nil {
		select {
		case <-w.ready:
		case <-ctx.Done():
			if !q.forget(w) { // its turn has come at the same moment
				q.next()
			}
			return nil, ctx.Err()
		}
	}
	entered := time.Now()
	end := sync.OnceFunc(func() { q.leave(time.Since(entered)) })
	// A request to a member that is silent takes as long as it may. If it kept its turn, few
	// such requests would keep all others from the members that answer.
	t := time.AfterFunc(silence, end)
	return func() { t.Stop(); end() }, nil
}

// join returns nil if the call has its turn at once.
func (q *Turns) join(begun time.Time) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gather > 0 && q.busy == 0 && !q.opening {
		q.opening = true
		time.AfterFunc(q.gather/2+rand.N(q.gather), q.open)
	}
	if q.busy < q.atOnce && !q.opening {
		q.busy++
		return nil
	}
	w := &turn{begun: begun, ready: make(chan struct{})}
	i, _ := slices.BinarySearchFunc(q.waiting, begun, func(w *turn, t time.Time) int {
		if w.begun.After(t) {
			return 1
		}
		return -1
	})
	q.waiting = slices.Insert(q.waiting, i, w)
	return w
}

// forget returns whether the call was still waiting.
func (q *Turns) forget(w *turn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// leave ends a turn. The next one begins after a pause of up to as long as this one took,
// by chance: where etcd is slow, perhaps because many sessions have lost their leases,
// it is asked less.
func (q *Turns) leave(took time.Duration) {
	q.mu.Lock()
	crowded := len(q.waiting) > 0
	q.mu.Unlock()
	if rest := min(took, maxRest); crowded && rest > 0 {
		time.AfterFunc(1+rand.N(rest), q.next)
		return
	}
	q.next()
}

// open begins the first turns.
func (q *Turns) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opening = false
	for q.busy < q.atOnce && len(q.waiting) > 0 {
		q.busy++
		q.first()
	}
}

// next ends a turn and begins another.
func (q *Turns) next() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 {
		q.busy--
		return
	}
	q.first()
}

// first wakes the first call.
func (q *Turns) first() {
	close(q.waiting[0].ready)
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
}
