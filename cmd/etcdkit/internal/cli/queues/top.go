package queues

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
)

// Top returns the verb top.
func Top(c *verb.Call) *cobra.Command {
	var every time.Duration
	var rows int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the busiest queues of a namespace, again and again",
		Long: `Show the queues with the oldest waits first, then those with the most permits in use, and elections last:
their candidates wait for as long as the leader leads. Of a limiter, each key is a queue, and its total is
one: a request that waits for the total uses a permit of its key. Rate limiters have no permits. On a
terminal the table is drawn again every --every, until ^C ends the command, with as many rows as fit; while
etcd does not answer, the last one is kept, and says so. Without a terminal it is printed once, or every
--every if that is given; standard error says when etcd does not answer. With -o json each state is one
line.`,
		Example: "etcdkit top -N payments\netcdkit top -N payments --every 10s --rows 50",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case every < 100*time.Millisecond:
				return exit.Usagef("--every %v is below a tenth of a second", every)
			case rows < 1:
				return exit.Usagef("--rows %d is below 1", rows)
			}
			return c.Open(cmd.Context(), "top", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				screen := output.Terminal(c.Std.Out) && c.Output == "table"
				return Redraw(ctx, c, sess, every, rows, screen, screen || output.Terminal(c.Std.Out) || cmd.Flags().Changed("every"))
			})
		},
	}
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "time between two tables")
	cmd.Flags().IntVar(&rows, "rows", 20, "queues that are shown")
	return cmd
}

// Redraw prints the table of top once, or again and again until ctx ends. On a screen it takes the place of the
// one before. It returns an error of etcd, of the output, and of ctx.
func Redraw(
	ctx context.Context, c *verb.Call, sess *concurrency.Session, every time.Duration, rows int, screen, again bool,
) error {
	var drawn []byte // the latest table
	for {
		state, err := c.Queues(ctx, sess)
		failed := ""
		switch code := exit.CodeOf(err); {
		case err == nil:
			var b bytes.Buffer
			err = printTop(&b, c, queue.Busiest(state), rows)
			drawn = b.Bytes()
		case screen && drawn != nil && code == exit.Unreachable && ctx.Err() == nil:
			failed = fmt.Sprintf("%s UTC: etcd does not answer, and the table is out of date\n", time.Now().UTC().Format(time.TimeOnly))
			err = nil
		case again && drawn != nil && code == exit.Unreachable && ctx.Err() == nil: // a stream has one state on each line
			fmt.Fprintf(c.Std.Err, "%s UTC: etcd does not answer: %s\n", time.Now().UTC().Format(time.TimeOnly), output.Printable(err.Error()))
			if err := verb.Pause(ctx, every); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		table := append(slices.Clone(drawn), failed...)
		if screen {
			width, height := output.Size(c.Std.Out)
			table = append([]byte("\x1b[H\x1b[2J"), output.Fit(table, width, height)...) // to the top, and clear: the whole table is written at once
		}
		if _, err := c.Std.Out.Write(table); err != nil || !again {
			return err
		}
		if err := verb.Pause(ctx, every); err != nil {
			return err
		}
	}
}

// printTop writes the first rows of a table.
func printTop(to io.Writer, c *verb.Call, all []queue.Busy, rows int) error {
	shown := append([]queue.Busy{}, all[:min(rows, len(all))]...) // an empty list, and no null, if there are none
	now := time.Now()
	return c.PrintTo(to, struct {
		output.Form
		AsOf   time.Time    `json:"as_of"`
		Total  int          `json:"total"`
		Queues []queue.Busy `json:"queues"`
	}{output.FormOf("top"), now.UTC(), len(all), shown}, func(t *output.Table) {
		waiting := 0
		for _, q := range all {
			waiting += q.Waiting
		}
		t.Line(fmt.Sprintf("%s UTC: %s, %s", now.UTC().Format(time.TimeOnly), output.Count(len(all), "queue", "queues"),
			output.Count(waiting, "request waits", "requests wait")))
		t.Row("KIND/NAME", "USED", "LIMIT", "WAITING", "OLDEST WAIT", "OLDEST HOLD")
		for _, q := range shown {
			t.Row(q.Name, q.Used, q.LimitText(), q.Waiting, output.Ago(now, q.OldestWait), output.Ago(now, q.OldestHold))
		}
	})
}
