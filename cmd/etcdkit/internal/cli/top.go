package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
)

func (a *app) top() *cobra.Command {
	var every time.Duration
	var rows int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the busiest queues of a namespace, again and again",
		Long: `Show the queues with the oldest waits first, then those with the most permits in use, and elections last:
their candidates wait for as long as the leader leads. Rate limiters have no permits. On a terminal the table is drawn again every --every, until the command is interrupted; while
etcd does not answer, the last one is kept, and says so. Without a terminal it is printed once, or every
--every if that is given; standard error says when etcd does not answer. With -o json each state is one line.`,
		Example: "etcdkit top -N payments\netcdkit top -N payments --every 10s --rows 50",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case every < 100*time.Millisecond:
				return usageError{fmt.Errorf("--every %v is below a tenth of a second", every)}
			case rows < 1:
				return usageError{fmt.Errorf("--rows %d is below 1", rows)}
			}
			return a.open(engine.Reader(cmd.Context()), "top", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				screen := terminal(a.std.Out) && a.output == "table"
				return a.redraw(ctx, sess, every, rows, screen, screen || terminal(a.std.Out) || cmd.Flags().Changed("every"))
			})
		},
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "time between two tables")
	cmd.Flags().IntVar(&rows, "rows", 20, "queues that are shown")
	return cmd
}

// redraw prints the table once, or again and again until ctx ends. On a screen it takes the place of the
// one before.
func (a *app) redraw(ctx context.Context, sess *concurrency.Session, every time.Duration, rows int, screen, again bool) error {
	out := a.std.Out
	var drawn []byte // the latest table
	for {
		reading, alive, cancel := a.patience(ctx) // there may be many
		all, err := busiest(reading, sess, alive)
		cancel()
		failed := ""
		switch code, _ := classify(err); {
		case err == nil:
			var b bytes.Buffer
			a.std.Out = &b
			err = a.printTop(all, rows)
			a.std.Out = out
			drawn = b.Bytes()
		case screen && drawn != nil && code == exitUnreachable && ctx.Err() == nil:
			failed = fmt.Sprintf("%s UTC: etcd does not answer, and the table is out of date\n", time.Now().UTC().Format(time.TimeOnly))
			err = nil
		case again && drawn != nil && code == exitUnreachable && ctx.Err() == nil: // a stream has one state on each line
			fmt.Fprintf(a.std.Err, "%s UTC: etcd does not answer: %s\n", time.Now().UTC().Format(time.TimeOnly), printable(err.Error()))
			if err := pausing(ctx, every); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		table := append(slices.Clone(drawn), failed...)
		if screen {
			table = append([]byte("\x1b[H\x1b[2J"), table...) // to the top, and clear: the whole table is written at once
		}
		if _, err := out.Write(table); err != nil || !again {
			return err
		}
		if err := pausing(ctx, every); err != nil {
			return err
		}
	}
}

// pausing waits, and returns ctx's error if that ends first.
func pausing(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// busyQueue is a queue in the table.
type busyQueue struct {
	Name       string    `json:"name"`
	Limit      int       `json:"limit"`
	Used       int       `json:"used"`
	Waiting    int       `json:"waiting"`
	OldestWait time.Time `json:"oldest_wait,omitzero"`
	OldestHold time.Time `json:"oldest_hold,omitzero"`
	paused     bool
	election   bool // its waiters are candidates that wait for as long as the leader leads
}

// statusesAtOnce is how many queues are read at the same time.
const statusesAtOnce = 8

// busiest reads all queues but rates, the oldest wait first and elections last, and calls alive after each answer.
func busiest(ctx context.Context, sess *concurrency.Session, alive func()) ([]busyQueue, error) {
	var names []subject
	for q, err := range sess.Queues(ctx) {
		if err != nil {
			return nil, because(ctx, err)
		}
		alive()
		if q.Kind != concurrency.KindRate {
			names = append(names, subject{kind: q.Kind, name: q.Name})
		}
	}
	all := make([]busyQueue, len(names))
	var reading sync.WaitGroup
	slots := make(chan struct{}, statusesAtOnce)
	for i, name := range names {
		slots <- struct{}{}
		reading.Go(func() {
			defer func() { <-slots }()
			all[i] = busyOf(ctx, sess, name)
			alive()
		})
	}
	reading.Wait()
	if err := ctx.Err(); err != nil {
		return nil, because(ctx, err)
	}
	last := func(q busyQueue) int {
		if q.election {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b busyQueue) int {
		return cmp.Or(last(a)-last(b), byAge(a.OldestWait, b.OldestWait), cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// busyOf reads one queue. Of one that cannot be read, such as a limiter without a total, the name is shown.
func busyOf(ctx context.Context, sess *concurrency.Session, name subject) busyQueue {
	b := busyQueue{Name: name.String(), election: name.kind == concurrency.KindElection}
	q, err := queueOf(sess, name)
	if err != nil {
		return b
	}
	st, err := q.Status(ctx)
	if err != nil {
		return b
	}
	b.Limit, b.Used, b.Waiting, b.paused = st.Limit, st.Used, len(st.Waiters), st.Stored && st.Limit == 0
	for _, r := range st.Waiters {
		b.OldestWait = earlier(b.OldestWait, r.Requested)
	}
	for _, r := range st.Holders {
		b.OldestHold = earlier(b.OldestHold, r.Requested)
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if byAge(a, b) > 0 {
		return b
	}
	return a
}

// byAge sorts earlier times first, and those that are not known last.
func byAge(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

func (a *app) printTop(all []busyQueue, rows int) error {
	shown := slices.Clone(all[:min(rows, len(all))])
	for i := range shown {
		shown[i].OldestWait, shown[i].OldestHold = shown[i].OldestWait.UTC(), shown[i].OldestHold.UTC()
	}
	now := time.Now()
	return a.print(struct {
		schema
		AsOf   time.Time   `json:"as_of"`
		Total  int         `json:"total"`
		Queues []busyQueue `json:"queues"`
	}{schemaOf("top"), now.UTC(), len(all), shown}, func(t *table) {
		waiting := 0
		for _, q := range all {
			waiting += q.Waiting
		}
		t.line(fmt.Sprintf("%s UTC: %s, %s", now.UTC().Format(time.TimeOnly), count(len(all), "queue", "queues"), count(waiting, "request waits", "requests wait")))
		t.row("KIND/NAME", "USED", "LIMIT", "WAITING", "OLDEST WAIT", "OLDEST HOLD")
		for _, q := range shown {
			limit := strconv.Itoa(q.Limit)
			if q.paused {
				limit = "paused"
			}
			t.row(q.Name, q.Used, limit, q.Waiting, ago(now, q.OldestWait), ago(now, q.OldestHold))
		}
	})
}
