package engine

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
)

// fake is a holder that records the mail that it gets.
type fake struct {
	mu      sync.Mutex
	notices []record.Notice
	free    bool
}

func (f *fake) Lose(_, _ error) func() { return nil }
func (f *fake) Evicted(n record.Notice) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notices = append(f.notices, n)
	return nil
}
func (f *fake) StepDown(record.Notice) {}
func (f *fake) Released() bool         { return f.free }

func always(relation) bool { return true }

func eviction(reason string) Mail { return Mail{Notice: &record.Notice{Reason: reason}} }

// written adds a ticket whose request has that token.
func written(r *roll, queue string, token int64) *Ticket {
	t := &Ticket{Queue: queue}
	r.creates(t)
	r.Written(t, token)
	return t
}

// empty shows that the roll keeps nothing.
func empty(t *testing.T, r *roll) {
	t.Helper()
	assert.Empty(t, r.written)
	assert.Empty(t, r.creating)
	assert.Empty(t, r.early)
	assert.Empty(t, r.holders)
}

// W6: one row for each order of what happens to a request and what others leave for it.
func TestRollDelivers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do     func(r *roll, a, b *Ticket) // a and b are being written
		a, b   string                      // the notice that each has then
		forget bool                        // b, too, was created
	}{
		"for a request that is written": {do: func(r *roll, a, b *Ticket) {
			r.Written(a, 7)
			r.deliver(7, eviction("x"))
			r.Written(b, 9)
		}, a: "x"},
		"before the token is known": {do: func(r *roll, a, b *Ticket) {
			r.deliver(7, eviction("x"))
			r.Written(a, 7)
			r.Written(b, 9)
		}, a: "x"},
		"for the last one to know its token": {do: func(r *roll, a, b *Ticket) {
			r.deliver(7, eviction("x"))
			r.Written(a, 5)
			r.Written(b, 7)
		}, b: "x"},
		"the later word counts": {do: func(r *roll, a, b *Ticket) {
			r.deliver(7, eviction("x"))
			r.Written(a, 7)
			r.deliver(7, eviction("y"))
			r.Written(b, 9)
		}, a: "y"},
		"a wish to step down leaves the notice": {do: func(r *roll, a, b *Ticket) {
			r.deliver(7, eviction("x"))
			r.deliver(7, Mail{Asked: &record.Notice{Reason: "please"}})
			r.Written(a, 7)
			r.Written(b, 9)
		}, a: "x"},
		"for none of this session's": {do: func(r *roll, a, b *Ticket) {
			r.Written(a, 5)
			r.Written(b, 9)
			r.deliver(7, eviction("x"))
		}},
		"W21: for both requests of one Txn": {do: func(r *roll, a, b *Ticket) {
			r.Written(a, 7)
			r.Written(b, 7)
			r.deliver(7, eviction("x"))
		}, a: "x", b: "x"},
		"W21: for both, between their answers": {do: func(r *roll, a, b *Ticket) {
			r.Written(a, 7)
			r.deliver(7, eviction("x"))
			r.Written(b, 7)
		}, a: "x", b: "x"},
		"a request that was not written gets none": {do: func(r *roll, a, b *Ticket) {
			r.deliver(7, eviction("x"))
			r.Written(a, 0)
			r.Written(b, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoll(always)
			a, b := &Ticket{Queue: "a"}, &Ticket{Queue: "b"}
			r.creates(a)
			r.creates(b)
			c.do(r, a, b)
			for ticket, want := range map[*Ticket]string{a: c.a, b: c.b} {
				got := ""
				if n := r.Notice(ticket); n != nil {
					got = n.Reason
				}
				assert.Equal(t, want, got, ticket.Queue)
			}
			r.forget(a)
			r.forget(b)
			empty(t, r)
		})
	}
}

// A notice that came early is kept while a request may turn out to be the one, and no
// longer, although others are being written all the time.
func TestRollKeepsEarlyNoticesForAWhile(t *testing.T) {
	t.Parallel()
	r := newRoll(always)
	first, second, later := &Ticket{}, &Ticket{}, &Ticket{}
	r.creates(first)
	r.creates(second)
	r.deliver(7, eviction("x"))
	r.creates(later)
	r.Written(first, 5)
	require.Len(t, r.early, 1, "it may be for the second")
	r.Written(second, 6)
	require.Empty(t, r.early, "a request that was begun after the notice has a greater token")
	r.Written(later, 9)
	require.Nil(t, r.Notice(later))
}

func TestRollAdds(t *testing.T) {
	t.Parallel()
	lost, why := errors.New("lost"), errors.New("why")
	for name, c := range map[string]struct {
		do       func(r *roll, x *Ticket)
		remember bool
		err      error
		holds    bool
	}{
		"a holder":                   {func(*roll, *Ticket) {}, true, nil, true},
		"none that was evicted":      {func(r *roll, _ *Ticket) { r.deliver(7, eviction("x")) }, true, nil, false},
		"one that is to step down":   {func(r *roll, _ *Ticket) { r.deliver(7, Mail{Asked: &record.Notice{}}) }, true, nil, true},
		"none after the end":         {func(r *roll, _ *Ticket) { r.end(lost, why) }, true, ErrEpoch, false},
		"none when Close has begun":  {func(*roll, *Ticket) {}, false, ErrClosed, false},
		"the end before the closing": {func(r *roll, _ *Ticket) { r.end(lost, why) }, false, ErrEpoch, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted := 0
			r := newRoll(func(relation) bool {
				if c.remember {
					counted++
				}
				return c.remember
			})
			x := written(r, "q", 7)
			c.do(r, x)
			left, err := r.add(x, &fake{}, fresh)
			require.Equal(t, c.err, err)
			require.Equal(t, x.left.Asked, left.Asked)
			require.Equal(t, c.holds, r.Holds("q", 7))
			require.False(t, r.Holds("another", 7))
			if c.holds {
				require.Len(t, r.deliver(7, eviction("x")), 1)
			} else {
				require.Empty(t, r.deliver(7, eviction("x")))
			}
			require.Equal(t, c.holds, counted == 1)
			known, _ := r.drop(x)
			require.Equal(t, c.holds, known)
			known, _ = r.drop(x)
			require.False(t, known, "once")
			r.forget(x)
			empty(t, r)
		})
	}
}

// A notice that arrives while a permit is being registered either stops that or ends the
// permit: the look for notices and the registration are one step.
func TestRollAddsInOneStep(t *testing.T) {
	t.Parallel()
	delivered := make(chan map[*Ticket]Holder, 1)
	var r *roll
	r = newRoll(func(relation) bool {
		go func() { delivered <- r.deliver(7, eviction("x")) }()
		for range 100 { // it waits for the lock; if it did not, it would be done by now
			runtime.Gosched()
			if len(delivered) > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		return true
	})
	x := written(r, "q", 7)
	left, err := r.add(x, &fake{}, fresh)
	require.NoError(t, err)
	require.Equal(t, left.Notice == nil, r.Holds("q", 7), "it holds, or its caller learns of the eviction")
	require.True(t, left.Notice != nil || len(<-delivered) == 1, "the eviction is delivered")
}

// W21: two requests of one Txn, in two queues, have one token. Each holds by itself.
func TestRollDistinguishesQueues(t *testing.T) {
	t.Parallel()
	r := newRoll(always)
	a, b := written(r, "a", 7), written(r, "b", 7)
	for _, x := range []*Ticket{a, b} {
		_, err := r.add(x, &fake{}, fresh)
		require.NoError(t, err)
	}
	require.Len(t, r.deliver(7, eviction("x")), 2)
	r.drop(a)
	r.forget(a)
	require.False(t, r.Holds("a", 7))
	require.True(t, r.Holds("b", 7))
	require.Len(t, r.deliver(7, eviction("x")), 1)
}

// The end counts each holder once, and the first cause is the one.
func TestRollEnds(t *testing.T) {
	t.Parallel()
	r := newRoll(always)
	held := &fake{}
	_, err := r.add(written(r, "q", 1), held, fresh)
	require.NoError(t, err)
	released := written(r, "q", 2)
	_, err = r.add(released, &fake{free: true}, fresh)
	require.NoError(t, err)
	require.True(t, r.enter(&Entered{}, "", fresh))
	require.True(t, r.enter(&Entered{}, "", fresh))
	require.True(t, r.leave(&Entered{}))
	require.Equal(t, 2, r.holdings().count(), "one that holds and one attempt, without what is released")

	lost, why := errors.New("lost"), errors.New("why")
	holders, n, _, first := r.end(lost, why)
	require.True(t, first)
	require.Equal(t, 3, n)
	require.Len(t, holders, 2)
	require.True(t, r.inUse)

	holders, n, _, first = r.end(errors.New("later"), nil)
	require.False(t, first)
	require.Zero(t, n)
	require.Empty(t, holders)
	cause, reason := r.Why()
	require.Equal(t, []error{lost, why}, []error{cause, reason})
	require.False(t, r.enter(&Entered{}, "", fresh))
	require.False(t, r.leave(&Entered{}), "the end has counted it")
	known, _ := r.drop(released)
	require.False(t, known, "this one, too")
	require.Zero(t, r.holdings().count())
}

// A request to step down is for one of two requests that one Txn has written, whether it comes before or
// after their registration.
func TestRollAsksOneOfTwins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key  string
		a, b bool
	}{"a": {"a", true, false}, "b": {"b", false, true}, "neither": {"c", false, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoll(always)
			a, b := &Ticket{Queue: "x"}, &Ticket{Queue: "y"}
			a.Key, b.Key = "a", "b"
			r.creates(a)
			r.creates(b)
			r.Written(a, 7)
			first := Mail{Asked: &record.Notice{Key: c.key, Reason: "first"}}
			r.deliver(7, first) // early for b
			r.deliver(7, Mail{Asked: &record.Notice{Key: "b", Reason: "second"}})
			r.Written(b, 7)
			left, err := r.add(a, &fake{}, fresh)
			require.NoError(t, err)
			require.Equal(t, c.a, left.Asked != nil)
			left, err = r.add(b, &fake{}, fresh)
			require.NoError(t, err)
			require.NotNil(t, left.Asked, "by one of the two")
			require.Equal(t, c.b, left.Asked.Reason == "first")
			holding := r.deliver(7, first)
			require.Equal(t, c.a, holding[a] != nil)
			require.Equal(t, c.b, holding[b] != nil)
		})
	}
}
