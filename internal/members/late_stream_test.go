package members

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A482 in internal/proof/tested-failures.md: a stream is late while a request on it has no answer, and no longer, whenever a
// login of the client ends.
func TestStreamIsLateUntilItsAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		login, answer time.Duration // when they end and come
		late          time.Duration // from when on the stream is late until the answer, or 0
	}{
		"the login ends before the answer":              {login: 300 * time.Millisecond, answer: 2 * time.Second, late: 600 * time.Millisecond},
		"the answer comes while the client logs in":     {login: 2 * time.Second, answer: 300 * time.Millisecond},
		"the login ends just before the timer":          {login: 499 * time.Millisecond, answer: 600 * time.Millisecond, late: 550 * time.Millisecond},
		"no login":                                      {answer: time.Second, late: 300 * time.Millisecond},
		"the answer comes at the moment of the timer":   {answer: lateAfter},
		"the answer comes then, and the client logs in": {login: time.Second, answer: 2 * lateAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bare(t, "")
				s.trouble = true // no loop is needed
				var login atomic.Bool
				s.loggingIn = login.Load
				ctx, c := s.begin(t.Context(), true)
				h := s.hold(ctx, c)
				late := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.late }
				login.Store(tt.login > 0)
				time.AfterFunc(tt.login, func() { login.Store(false) })
				h.asks()
				time.AfterFunc(tt.answer, h.answers)
				if tt.late > 0 {
					time.Sleep(tt.late)
					require.Equal(t, 1, late())
				}
				time.Sleep(time.Minute)
				require.Zero(t, late())
				require.NoError(t, h.ends(nil))
			})
		})
	}
}

// The same for the opening: its timer has fired, and waits while the stream is opened.
func TestOpenedAsItsTimerFires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bare(t, "")
		s.trouble = true
		ctx, c := s.begin(t.Context(), true)
		h := s.hold(ctx, c)
		s.isLate(c, nil)
		h.isLate()
		require.Zero(t, s.late)
		require.NoError(t, h.ends(nil))
	})
}
