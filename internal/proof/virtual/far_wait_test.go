package virtual

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	line "github.com/etcdkit/etcdkit/internal/rank"
	"github.com/etcdkit/etcdkit/observe"
)

// The wait of a far request ends: its error says how full the queue is, by one count, and nothing is
// listed for it. Reports say how full it was when the request joined.
func TestFarWaitEnds(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, on []*desk) {
		f, c := behind(on, &blind, 1, 4)
		reports := make(chan observe.Waiting, 100)
		f.openIn(line.WithHorizon(t.Context(), blind), concurrency.SessionOptions{Hooks: testkit.Trace{Waiting: func(i observe.Waiting) { reports <- i }}.Hooks()})
		var full *concurrency.FullError
		require.ErrorAs(t, <-f.ask(concurrency.Wait(time.Second)), &full)
		require.Equal(t, []int{1, 1, 3}, []int{full.Limit, full.Used, full.Waiting})
		report := <-reports
		require.Equal(t, []int{4, 1}, []int{report.Ahead, report.Limit})
		synctest.Wait()
		require.Len(t, c.server.Keys(queueRange), 4)
	})
}
