package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/record"
)

func (a *app) top() *cobra.Command {
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
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case every < 100*time.Millisecond:
				return usageError{fmt.Errorf("--every %v is below a tenth of a second", every)}
			case rows < 1:
				return usageError{fmt.Errorf("--rows %d is below 1", rows)}
			}
			return a.open(cmd.Context(), "top", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
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
		state, err := a.queues(ctx, sess)
		failed := ""
		switch code, _ := classify(err); {
		case err == nil:
			var b bytes.Buffer
			a.std.Out = &b
			err = a.printTop(busiest(state), rows)
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
			width, height := 0, 0
			if f, ok := out.(*os.File); ok {
				width, height, _ = term.GetSize(int(f.Fd()))
			}
			table = append([]byte("\x1b[H\x1b[2J"), fit(table, width, height)...) // to the top, and clear: the whole table is written at once
		}
		if _, err := out.Write(table); err != nil || !again {
			return err
		}
		if err := pausing(ctx, every); err != nil {
			return err
		}
	}
}

// fit returns what of a table a terminal has room for, with the line on which the cursor stays: else its first rows,
// which are the busiest, would scroll away. 0 is a size that is not known.
func fit(table []byte, width, height int) []byte {
	lines := strings.SplitAfter(string(table), "\n")
	lines = lines[:len(lines)-1] // what follows the last line end
	if height > 1 && len(lines) >= height {
		hidden := len(lines) - (height - 2)
		lines = append(lines[:height-2], fmt.Sprintf("and %s; a larger terminal has room for them\n", count(hidden, "line more", "lines more")))
	}
	for i, line := range lines {
		if r := []rune(line); width > 0 && len(r) > width+1 {
			lines[i] = string(r[:width]) + "\n"
		}
	}
	return []byte(strings.Join(lines, ""))
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
	Limit      int64     `json:"limit"`
	Stored     bool      `json:"stored"` // whether a limit is stored; that of a key may be the limiter's default
	Paused     bool      `json:"paused"` // by a limit of 0
	Used       int64     `json:"used"`
	Waiting    int       `json:"waiting"`
	OldestWait time.Time `json:"oldest_wait,omitzero"`
	OldestHold time.Time `json:"oldest_hold,omitzero"`
	of         subject
	foreign    int
}

func busy(of subject, q fleet.Summary) busyQueue {
	return busyQueue{
		of.String(), q.Limit, q.Known && !of.fixed(), q.Known && q.Limit == 0, q.Used, q.Waiting, record.Time(q.OldestWait).UTC(), record.Time(q.OldestHold).UTC(), of, q.Foreign,
	}
}

// limit is the limit in a table.
func (b busyQueue) limit() string {
	switch {
	case b.Paused:
		return "paused"
	case !b.Stored && !b.of.fixed():
		return "-"
	}
	return strconv.FormatInt(b.Limit, 10)
}

// busiest returns the queues of a namespace, the keys and totals of limiters among them, the oldest wait first and
// elections last. A request that waits for the total of a limiter waits there, and uses a permit of its key.
func busiest(s *fleet.State) (all []busyQueue) {
	for id, q := range s.Queues {
		all = append(all, busy(subject{kind: concurrency.QueueKind(id.Label()), name: id.Name}, q.Now))
	}
	for name, l := range s.Limiters {
		if l.Total != nil {
			all = append(all, busy(subject{kind: concurrency.KindLimiter, name: name}, l.Total.Now))
		}
		all = append(all, busyKeys(name, l)...)
	}
	sortBusy(all)
	return all
}

// busyKeys returns the keys of a limiter.
func busyKeys(name string, l *fleet.Limiter) (all []busyQueue) {
	for key, q := range l.Keys {
		all = append(all, busy(subject{kind: concurrency.KindLimiter, name: name, key: key}, q.Now))
	}
	sortBusy(all)
	return all
}

func sortBusy(all []busyQueue) {
	slices.SortFunc(all, func(a, b busyQueue) int { return a.rank().Compare(b.rank()) })
}

func (b busyQueue) rank() fleet.Rank {
	return fleet.Rank{Election: b.of.kind == concurrency.KindElection, OldestWait: b.OldestWait, Used: b.Used, Name: b.Name}
}

func (a *app) printTop(all []busyQueue, rows int) error {
	shown := all[:min(rows, len(all))]
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
			t.row(q.Name, q.Used, q.limit(), q.Waiting, ago(now, q.OldestWait), ago(now, q.OldestHold))
		}
	})
}
