package queues

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
)

func rateOf(sess *concurrency.Session, s queue.Subject) (*concurrency.RateLimiter, error) {
	return concurrency.NewRateLimiter(sess, s.Name, concurrency.Rate{PerSecond: 1, Burst: 1}, &concurrency.RateLimiterOptions{AdoptRate: true})
}

func changeRate(ctx context.Context, sess *concurrency.Session, s queue.Subject, n newLimit, opts []concurrency.SetLimitOption) error {
	rate, err := strconv.ParseFloat(n.number, 64)
	if err != nil {
		return exit.Usagef("rate %q is not a number", n.number)
	}
	l, err := rateOf(sess, s)
	if err != nil {
		return err
	}
	return l.SetRate(ctx, concurrency.Rate{PerSecond: rate, Burst: n.burst}, opts...)
}

// showRate prints the state of a rate limiter, with its author unless it was set just now.
func showRate(ctx context.Context, c *verb.Call, sess *concurrency.Session, s queue.Subject, now bool) error {
	l, err := rateOf(sess, s)
	if err != nil {
		return err
	}
	st, err := l.Status(ctx)
	if err != nil {
		return err
	}
	type holder struct {
		Owner   string    `json:"owner"`
		Shares  int       `json:"shares"`
		Waiting int       `json:"waiting_shares"`
		Since   time.Time `json:"since,omitzero"`
	}
	holders := make([]holder, 0, len(st.Holders))
	for _, h := range st.Holders {
		holders = append(holders, holder{h.Owner, h.Shares, h.Waiting, h.Since.UTC()})
	}
	var by *author
	if !now {
		by = authorsOf(ctx, sess)(s, false)
	}
	shown := struct {
		output.Form
		Name     string        `json:"name"`
		Rate     float64       `json:"per_second"`
		Burst    int           `json:"burst"`
		Stored   bool          `json:"stored"`
		Unread   string        `json:"unreadable,omitempty"` // why a rate that is stored cannot be read
		Shares   int           `json:"shares"`
		Revision output.Number `json:"revision"`
		*author
		Holders []holder `json:"holders"`
	}{output.FormOf("rate"), s.Name, st.Rate.PerSecond, st.Rate.Burst, st.Stored, queue.Why(st.Unreadable), st.Shares, output.Number(st.Revision), by, holders}
	return c.Print(shown, func(t *output.Table) {
		if st.Unreadable != nil {
			t.Line(fmt.Sprintf("%s: rate not known (%v), revision %d", s, st.Unreadable, st.Revision))
			return
		}
		if !st.Stored {
			t.Line(fmt.Sprintf("%s: no rate stored, revision %d", s, st.Revision))
			return
		}
		t.Line(fmt.Sprintf("%s: %v per second, burst %d, in %s, revision %d", s, st.Rate.PerSecond, st.Rate.Burst,
			output.Count(st.Shares, "share", "shares"), st.Revision))
		if text := by.text(time.Now()); text != "" {
			t.Line("rate " + text)
		}
		if len(holders) == 0 {
			return
		}
		t.Row("OWNER", "SHARES", "WAITING", "AGE")
		for _, h := range holders {
			t.Row(h.Owner, h.Shares, h.Waiting, output.Ago(time.Now(), h.Since))
		}
	})
}
