package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/members"
)

// brokenStream is a stream of renewals that has ended.
type brokenStream struct{}

var errBroken = errors.New("the stream is broken")

func (brokenStream) Send(int64) error            { return errBroken }
func (brokenStream) Recv() (int64, int64, error) { return 0, 0, errBroken }

// T2: a renewal that could not be sent is no request under way, whether Recv returns before
// or after that. Were it counted for ever, a call that its caller cuts short would look
// like an etcd that does not answer; were it taken back twice, a request that has no answer
// would not.
func TestRenewalThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for name, renew := range map[string]func(*renewals){
		"Recv has returned before": func(r *renewals) { _, _, _ = r.Recv(); _ = r.Send(1) },
		"Recv returns afterwards":  func(r *renewals) { _ = r.Send(1); _, _, _ = r.Recv() },
		"Recv is not called":       func(r *renewals) { _ = r.Send(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &contact{}
				renew(&renewals{Stream: brokenStream{}, recording: recording{contact: c}})
				u, bad := c.trouble()
				require.True(t, bad, "the stream has failed")
				require.ErrorIs(t, u.Err, errBroken)

				c.answer(sent(c), nil) // etcd answers again
				c.answer(sent(c), context.Canceled)
				time.Sleep(2 * silence)
				_, bad = c.trouble()
				require.False(t, bad, "nothing is under way")

				sent(c)
				time.Sleep(2 * silence)
				_, bad = c.trouble()
				require.True(t, bad, "a request has no answer")
			})
		})
	}
}

// M8: a call that ends because its member hangs says nothing of etcd, whose other members answer: it is no
// outage, nor does it end one.
func TestUnansweredByOneMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &contact{}
		asked := sent(c)
		time.Sleep(2 * silence)
		c.answer(asked, &members.UnansweredError{})
		_, bad := c.trouble()
		require.False(t, bad)

		c.answer(sent(c), errBroken)
		_, bad = c.trouble()
		require.True(t, bad)
		c.answer(sent(c), &members.UnansweredError{})
		_, bad = c.trouble()
		require.True(t, bad, "no member has answered since")
	})
}

// T1: etcd falls silent right after an answer. What counts is the oldest request without an answer, whether it was
// sent before that answer or after it; but one that its member alone does not answer, while others answer, is no
// outage, nor is one that its caller cuts short soon.
func TestSilenceAfterAnAnswer(t *testing.T) {
	t.Parallel()
	const moment, long = time.Millisecond, silence + time.Millisecond
	cut := context.DeadlineExceeded
	for name, tc := range map[string]struct {
		happens func(c *contact)
		silent  bool
	}{
		"an earlier request is answered": {func(c *contact) { a := sent(c); sent(c); time.Sleep(moment); c.answer(a, nil); time.Sleep(long) }, true},
		"a later request is answered":    {func(c *contact) { sent(c); time.Sleep(moment); c.answer(sent(c), nil); time.Sleep(long) }, true},
		"a watch brings something":       {func(c *contact) { sent(c); time.Sleep(moment); c.answer(nil, nil); time.Sleep(long) }, true},
		"the request is cut short": {func(c *contact) {
			a := sent(c)
			time.Sleep(moment)
			c.answer(nil, nil)
			time.Sleep(long)
			c.answer(a, cut)
		}, true},
		"others are cut short at once":  {func(c *contact) { sent(c); c.answer(nil, nil); time.Sleep(long); c.answer(sent(c), cut) }, true},
		"it falls silent for a moment":  {func(c *contact) { sent(c); time.Sleep(moment); c.answer(nil, nil); time.Sleep(silence - moment) }, false},
		"the request is cut short soon": {func(c *contact) { a := sent(c); time.Sleep(silence - moment); c.answer(a, cut); time.Sleep(long) }, false},
		"soon after an answer": {func(c *contact) {
			a := sent(c)
			time.Sleep(moment)
			c.answer(nil, nil)
			time.Sleep(silence - moment)
			c.answer(a, cut)
		}, false},
		"the request is answered":         {func(c *contact) { a := sent(c); time.Sleep(long); c.answer(a, nil); time.Sleep(long) }, false},
		"a member hangs, another answers": {func(c *contact) { sent(c); time.Sleep(long); c.answer(sent(c), nil); time.Sleep(long) }, false},
		"a call to a member that hangs is cut": {func(c *contact) {
			a := sent(c)
			time.Sleep(long)
			c.answer(nil, nil)
			time.Sleep(long)
			c.answer(a, cut)
		}, false},
		"a member hangs, and then etcd is away": {func(c *contact) { sent(c); time.Sleep(long); c.answer(sent(c), nil); sent(c); time.Sleep(long) }, true},
		"it answers again": {func(c *contact) {
			a := sent(c)
			time.Sleep(long)
			c.answer(a, errBroken)
			c.answer(sent(c), nil)
			time.Sleep(long)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &contact{}
				c.answer(sent(c), nil)
				tc.happens(c)
				o, silent := c.trouble()
				require.Equal(t, tc.silent, silent)
				if silent {
					require.False(t, o.Since.Before(o.LastAnswer), "no silence begins before the last answer")
					require.GreaterOrEqual(t, time.Since(o.Since), silence)
				}
			})
		})
	}
}

// sent records that a request is sent.
func sent(c *contact) *asked {
	a := &asked{}
	c.ask(a)
	return a
}

// Requests end in any order: the oldest of those that are left is known.
func TestOldestRequest(t *testing.T) {
	t.Parallel()
	const n = 4
	for _, order := range [][n]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 3, 0, 1}, {1, 2, 0, 3}, {2, 1, 3, 0}} {
		c := &contact{}
		var open [n]*asked
		for i := range open {
			open[i] = sent(c)
		}
		for _, i := range order {
			c.ends(open[i])
			c.ends(open[i]) // which does not count any more
			open[i] = nil
			at := slices.IndexFunc(open[:], func(a *asked) bool { return a != nil })
			if at < 0 {
				require.Nil(t, c.oldest, order)
			} else {
				require.Same(t, open[at], c.oldest, order)
			}
		}
		require.Nil(t, c.newest)
		require.Same(t, sent(c), c.oldest, "the first one of the next")
	}
}
