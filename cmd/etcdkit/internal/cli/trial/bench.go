package trial

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/doctor"
)

// benchOptions are the flags of `bench`.
type benchOptions struct {
	each    time.Duration
	clients int
}

// Bench returns the verb bench.
func Bench(c *verb.Call) *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure etcdkit on your own cluster",
		Long: `Measure on your own cluster what an acquire, a contended lock, and a request that is done once cost, beside
a bare write, which is what the disks and the network of the cluster cost.

bench writes as fast as etcd answers, for --duration for each measurement: do not run it on a cluster
whose services are in use. Its keys are below --prefix, in a namespace with a random name, and are
removed at the end, also when the command is interrupted; etcd's file keeps its size until compaction and
defragmentation.`,
		Example: "etcdkit bench\netcdkit bench --yes --duration 10s --clients 32 -o json",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.clients < 1 || o.clients > 1000 || o.each <= 0 {
				return exit.Usagef("--clients is between 1 and 1000, and --duration is positive")
			}
			if err := c.Confirm(cmd.Context(), fmt.Sprintf("Write to etcd at %s as fast as it answers, for %v",
				strings.Join(c.Etcd.Endpoints, ","), time.Duration(len(workloads))*o.each)); err != nil {
				return err
			}
			if err := reach(cmd.Context(), c); err != nil {
				return err
			}
			var all benchResult
			if err := inScratch(cmd.Context(), c, "bench", func(ctx context.Context, s *scratch) (err error) {
				all, err = measureAll(ctx, c, s, o)
				return err
			}); err != nil {
				return err
			}
			return all.print(c) // after nothing is left: it may have no reader
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.each, "duration", 5*time.Second, "how long each measurement lasts")
	f.IntVar(&o.clients, "clients", 8, "how many sessions contend, each on a connection of its own")
	return cmd
}

// measured is the result of one measurement as JSON.
type measured struct {
	Name    string         `json:"name"`
	Clients int            `json:"clients"`
	Count   int            `json:"count"`
	Rate    float64        `json:"per_second"`
	P50     output.Seconds `json:"p50_seconds"`
	P90     output.Seconds `json:"p90_seconds"`
	P99     output.Seconds `json:"p99_seconds"`
	Most    output.Seconds `json:"max_seconds"`
}

// summarize returns the result of a measurement from how long each operation took.
func summarize(name string, clients int, took []time.Duration, within time.Duration) measured {
	slices.Sort(took)
	at := func(percent int) output.Seconds { // the least that so many percent do not exceed
		if len(took) == 0 {
			return 0
		}
		return output.Seconds(took[max(0, (len(took)*percent+99)/100-1)])
	}
	m := measured{Name: name, Clients: clients, Count: len(took), P50: at(50), P90: at(90), P99: at(99), Most: at(100)}
	if within > 0 {
		m.Rate = float64(len(took)) / within.Seconds()
	}
	return m
}

// repeat executes an operation in some clients at the same time, and returns how long each took. An
// operation lasts clients times the bound at most, since the last of a queue waits for all others. When
// ctx ends, those under way have the bound to end by themselves: an interrupted one may write later.
func repeat(
	ctx context.Context, clients int, d, bound time.Duration, op func(ctx context.Context, client, n int) error,
) (took []time.Duration, within time.Duration, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	calls, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	context.AfterFunc(ctx, func() { time.AfterFunc(bound, end) })
	began := time.Now()
	for client := range clients {
		all.Go(func() {
			for n := 0; time.Since(began) < d && ctx.Err() == nil; n++ {
				start := time.Now()
				call, done := context.WithTimeout(calls, time.Duration(clients)*bound)
				failed := op(call, client, n)
				done()
				mu.Lock()
				if failed == nil {
					took = append(took, time.Since(start))
				} else if err == nil {
					err = failed
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return took, time.Since(began), err
}

// benchResult is what bench prints as JSON.
type benchResult struct {
	output.Form
	Servers  []server       `json:"servers"`
	Duration output.Seconds `json:"duration_seconds"`
	Results  []measured     `json:"results"`
}

// measureAll makes all measurements.
func measureAll(ctx context.Context, c *verb.Call, s *scratch, o benchOptions) (benchResult, error) {
	all := benchResult{output.FormOf("bench"), s.servers(ctx), output.Seconds(o.each), []measured{}}
	p := c.Progress()
	defer p.End()
	for _, w := range workloads {
		clients := 1
		if w.contended {
			clients = o.clients
		}
		p.Show("%d of %d: %s", len(all.Results)+1, len(workloads), w.name)
		op, err := w.prepare(ctx, s, clients)
		if err != nil {
			return all, err
		}
		took, within, err := repeat(ctx, clients, o.each, c.Etcd.Timeout, op)
		if err != nil {
			return all, fmt.Errorf("%s: %w", w.name, err)
		}
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		all.Results = append(all.Results, summarize(w.name, clients, took, within))
	}
	return all, nil
}

func (b *benchResult) print(c *verb.Call) error {
	return c.Print(b, func(t *output.Table) {
		for _, sv := range b.Servers {
			t.Line(fmt.Sprintf("%s: etcd %s, %s, database %s", sv.Endpoint, output.OrDash(sv.Version), sv.role(), doctor.MiB(sv.Size)))
		}
		t.Row("", "CLIENTS", "COUNT", "PER SECOND", "P50", "P90", "P99", "MAX")
		for _, r := range b.Results {
			t.Row(r.Name, r.Clients, r.Count, fmt.Sprintf("%.0f", r.Rate), fine(r.P50), fine(r.P90), fine(r.P99), fine(r.Most))
		}
	})
}

// fine returns a duration in milliseconds with two digits behind the point.
func fine(s output.Seconds) string {
	return fmt.Sprintf("%.2fms", float64(s)/float64(time.Millisecond))
}
