package permits

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

func TestWaitingFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	holder := func(name string, age time.Duration) observe.Holder {
		return observe.Holder{Owner: name, Requested: now.Add(-age)}
	}
	sure := holder("web-7", 250*time.Second)
	sure.ExpiresBy = now.Add(10 * time.Second)
	many := make([]observe.Holder, 10)
	for i := range many {
		many[i] = holder("web", time.Minute)
	}
	for text, w := range map[string]observe.Waiting{
		"waiting for semaphore/x: at most 500 requests before this one":                                                          {Ahead: 500},
		"waiting for semaphore/x: 3rd in the queue, behind web-7 (4m10s, until 12:00:10 UTC at the latest if it does not renew)": {Ahead: 3, Blocking: []observe.Holder{sure}},
		"waiting for semaphore/x: 1st in the queue, behind a (1s), b (2s), c (3s)":                                               {Ahead: 3, Blocking: []observe.Holder{holder("a", time.Second), holder("b", 2*time.Second), holder("c", 3*time.Second)}},
		"waiting for semaphore/x: 1st in the queue, behind a (1s), a (1s), 2 others":                                             {Ahead: 4, Blocking: []observe.Holder{holder("a", time.Second), holder("a", time.Second), holder("a", time.Second), holder("a", time.Second)}},
		"waiting for semaphore/x: 40 requests before this one, the oldest of web (1m0s), web (1m0s), 8 others":                   {Ahead: 40, Blocking: many},
		"waiting for semaphore/x: it is paused by a limit of 0 ('etcdkit limit' changes it)":                                     {Ahead: 1, Blocking: []observe.Holder{sure}},
	} {
		w.Name = "x"
		if w.Limit = 2; strings.Contains(text, "paused") {
			w.Limit = 0
		}
		require.Equal(t, text, waitingFor(concurrency.KindSemaphore, w, now))
	}
}
