package engine

import (
	"context"
	"errors"
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
				renew(&renewals{Stream: brokenStream{}, contact: c})
				u, bad := c.trouble()
				require.True(t, bad, "the stream has failed")
				require.ErrorIs(t, u.Err, errBroken)

				c.answer(c.ask(), nil) // etcd answers again
				c.answer(c.ask(), context.Canceled)
				time.Sleep(2 * silence)
				_, bad = c.trouble()
				require.False(t, bad, "nothing is under way")

				c.ask()
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
		asked := c.ask()
		time.Sleep(2 * silence)
		c.answer(asked, &members.UnansweredError{})
		_, bad := c.trouble()
		require.False(t, bad)

		c.answer(c.ask(), errBroken)
		_, bad = c.trouble()
		require.True(t, bad)
		c.answer(c.ask(), &members.UnansweredError{})
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
		"an earlier request is answered": {func(c *contact) { a := c.ask(); c.ask(); time.Sleep(moment); c.answer(a, nil); time.Sleep(long) }, true},
		"a later request is answered":    {func(c *contact) { c.ask(); time.Sleep(moment); c.answer(c.ask(), nil); time.Sleep(long) }, true},
		"a watch brings something":       {func(c *contact) { c.ask(); time.Sleep(moment); c.answer(nil, nil); time.Sleep(long) }, true},
		"the request is cut short": {func(c *contact) {
			a := c.ask()
			time.Sleep(moment)
			c.answer(nil, nil)
			time.Sleep(long)
			c.answer(a, cut)
		}, true},
		"others are cut short at once":  {func(c *contact) { c.ask(); c.answer(nil, nil); time.Sleep(long); c.answer(c.ask(), cut) }, true},
		"it falls silent for a moment":  {func(c *contact) { c.ask(); time.Sleep(moment); c.answer(nil, nil); time.Sleep(silence - moment) }, false},
		"the request is cut short soon": {func(c *contact) { a := c.ask(); time.Sleep(silence - moment); c.answer(a, cut); time.Sleep(long) }, false},
		"soon after an answer": {func(c *contact) {
			a := c.ask()
			time.Sleep(moment)
			c.answer(nil, nil)
			time.Sleep(silence - moment)
			c.answer(a, cut)
		}, false},
		"the request is answered":         {func(c *contact) { a := c.ask(); time.Sleep(long); c.answer(a, nil); time.Sleep(long) }, false},
		"a member hangs, another answers": {func(c *contact) { c.ask(); time.Sleep(long); c.answer(c.ask(), nil); time.Sleep(long) }, false},
		"a call to a member that hangs is cut": {func(c *contact) {
			a := c.ask()
			time.Sleep(long)
			c.answer(nil, nil)
			time.Sleep(long)
			c.answer(a, cut)
		}, false},
		"a member hangs, and then etcd is away": {func(c *contact) { c.ask(); time.Sleep(long); c.answer(c.ask(), nil); c.ask(); time.Sleep(long) }, true},
		"it answers again": {func(c *contact) {
			a := c.ask()
			time.Sleep(long)
			c.answer(a, errBroken)
			c.answer(c.ask(), nil)
			time.Sleep(long)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &contact{}
				c.answer(c.ask(), nil)
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
