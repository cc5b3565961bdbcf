package console

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/doctor"
)

// Of several calls one makes the connections. Another waits for it no longer than its ctx lasts, and then has what was known
// before.
func TestStreamsAreAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s streamCheck
		asked := 0
		slowly := func(context.Context) []doctor.Finding {
			asked++
			time.Sleep(10 * time.Second)
			return doctor.One(doctor.OK, "", "answer %d", asked)
		}
		answers := make(chan []doctor.Finding, 3)
		look := func() { answers <- s.look(t.Context(), slowly) }
		briefly := func() string {
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			found := s.look(ctx, slowly)
			require.Equal(t, time.Second, time.Since(began))
			if found == nil {
				return ""
			}
			return found[0].Text
		}
		for n, known := range []string{"", "answer 1"} {
			for range 3 {
				go look()
			}
			require.Equal(t, known, briefly())
			for range 3 {
				require.Len(t, <-answers, 1)
			}
			require.Equal(t, n+1, asked)
			time.Sleep(streamsEvery + time.Second)
		}
	})
}

// A call whose ctx ends before an endpoint has answered leaves the next call to ask again.
func TestStreamsAreAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s streamCheck
		answer := make(chan []doctor.Finding, 1)
		ended := make(chan []doctor.Finding)
		go func() {
			ended <- s.look(t.Context(), func(context.Context) []doctor.Finding { return <-answer })
		}()
		synctest.Wait()
		go func() {
			ended <- s.look(t.Context(), func(context.Context) []doctor.Finding { return doctor.One(doctor.OK, "", "yes") })
		}()
		synctest.Wait()
		answer <- nil
		require.Empty(t, <-ended)
		require.Len(t, <-ended, 1)
	})
}
