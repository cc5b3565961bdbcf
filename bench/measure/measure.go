// Package measure runs cells of a benchmark in rounds, and reports medians and ratios.
//
// The machine's speed drifts while a benchmark runs. So contenders that are compared are
// measured one right after the other in each round, in an order that changes from round to
// round; a ratio is taken in each round, and its median over the rounds is reported.
package measure

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// Sample is what one measurement of a cell has found, by metric.
type Sample map[Metric]float64

// Metric is a measured quantity; the name ends with its unit.
type Metric string

// The metrics. Not every cell has all of them.
const (
	Rate        Metric = "per_s"            // operations per second
	WaitMedian  Metric = "wait_p50_ms"      // from the call to the permit
	Wait99      Metric = "wait_p99_ms"      //
	WaitLongest Metric = "wait_max_ms"      //
	Unfair      Metric = "wait_max_x_mean"  // the longest wait against the mean of all waits
	PassMedian  Metric = "handover_p50_ms"  // from the call of Release to the next permit, at limit 1
	Pass99      Metric = "handover_p99_ms"  //
	EachTime    Metric = "each_us"          // median time of one operation, one at a time
	Allocs      Metric = "allocs"           // allocations of one operation
	Events      Metric = "events_per_op"    // watch events that the server has sent
	Reads       Metric = "reads_per_op"     // Range requests that the server has executed
	ServerCPU   Metric = "server_us_per_op" // processor time of the server
	ClientCPU   Metric = "client_us_per_op" // processor time of the process with the callers
	BothCPU     Metric = "cpu_us_per_op"    // of client and server, which share the machine
	Heap        Metric = "heap_bytes"       // live heap of one operation in progress
	Stacks      Metric = "stack_bytes"      // the stacks of its goroutines
	IdleLongest Metric = "idle_slot_max_ms" // from the end of a permit to the next one, the longest
	IdleMedian  Metric = "idle_slot_p50_ms" //
	WorstPut    Metric = "put_max_ms"       // of another client meanwhile
	Capacity    Metric = "capacity"         // permits in use, of those that the limit allows, from 0 to 1
	Received    Metric = "requests_per_s"   // messages that the servers have received from clients
	ServerHeap  Metric = "server_kb_each"   // memory of the servers for one more: heap and stacks, all members together
	ClientHeap  Metric = "client_kb_each"   // the same of the clients
	Watches     Metric = "watches_each"     // at the servers, for one more
)

// worst reports whether the worst of all rounds counts, instead of the median.
func (m Metric) worst() bool { return m == WaitLongest || m == IdleLongest || m == WorstPut }

// Point is where a sample is in a plot.
type Point struct {
	Plot   string  `json:"plot"`
	Series string  `json:"series"`
	X      float64 `json:"x"`
}

// Cell is one thing to measure.
type Cell struct {
	// IDs name the samples that Run returns, such as "waiting: ours, 64 processes". The part before
	// the colon is the table that a sample is in.
	IDs []string
	// Points, where there are any, are those of the samples.
	Points []Point
	// Run measures once. The error of a contender that is not available is an Unavailable.
	Run func(ctx context.Context) ([]Sample, error)
}

// Unavailable is why a cell cannot be measured on this machine, such as "no redis-server".
type Unavailable string

func (u Unavailable) Error() string { return string(u) }

// Comparison is one row of the table: a metric of one cell against that of another in the same
// round, or against a fixed figure.
type Comparison struct {
	Work    string // what was done
	Of      string // the cell's ID
	Against string // the other cell's ID; "" compares with Figure
	Figure  float64
	Name    string // of the reference, for readers; defaults to Against
	Metric  Metric
	Inverse bool    // the ratio is Against : Of, such as for times where a higher ratio is better
	Target  float64 // 0 is none
	AtMost  bool    // the ratio must not exceed Target, instead of reaching it
}

// Group is the cells that are compared with each other, on servers of their own in each round.
type Group struct {
	Name    string
	Rounds  int                                                             // in how many rounds it is measured at most; 0 is in all
	Cells   func(ctx context.Context) (cells []Cell, end func(), err error) // for one round
	Compare []Comparison
}

// Results are all samples, by cell and round.
type Results struct {
	Samples map[string][]Sample // nil where a round has none
	Missing map[string]string   // why a cell was not measured
	Order   []string            // of the cells, as first measured
	Points  map[string]Point    // of the cells that have one
}

// NewResults returns empty results.
func NewResults() *Results {
	return &Results{Samples: map[string][]Sample{}, Missing: map[string]string{}, Points: map[string]Point{}}
}

// Turn returns the order of a round: each starts with another cell, and every second one goes
// backwards, so that no cell always follows the same one.
func Turn[T any](all []T, round int) []T {
	if len(all) == 0 {
		return nil
	}
	at := round % len(all)
	turned := append(slices.Clone(all[at:]), all[:at]...)
	if round%2 == 1 {
		slices.Reverse(turned)
	}
	return turned
}

// Median returns the median of what is given, and 0 of nothing.
func Median[T cmp.Ordered](all []T) T { return Quantile(all, 0.5) }

// Quantile returns the value that the part q of all values does not exceed, and 0 of nothing.
func Quantile[T cmp.Ordered](all []T, q float64) T {
	if len(all) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Of returns the median of a cell's metric over all rounds, or the worst where the longest counts.
func (r *Results) Of(id string, m Metric) (v float64, ok bool) {
	var all []float64
	for _, s := range r.Samples[id] {
		if v, ok := s[m]; ok {
			all = append(all, v)
		}
	}
	return m.over(all), len(all) > 0
}

// over combines the values of all rounds.
func (m Metric) over(all []float64) float64 {
	if m.worst() {
		return Quantile(all, 1)
	}
	return Median(all)
}

// Metrics returns the medians of all metrics of a cell.
func (r *Results) Metrics(id string) Sample {
	medians := Sample{}
	for _, s := range r.Samples[id] {
		for m := range maps.Keys(s) {
			medians[m], _ = r.Of(id, m)
		}
	}
	return medians
}

// Verdict is a comparison with its result.
type Verdict struct {
	Comparison
	Ratios  []float64 // one for each round
	Ratio   float64   // their median, or the worst
	Missing string    // why there is none
}

// Reached reports whether the target is reached; known is false where there is none.
func (v Verdict) Reached() (reached, known bool) {
	if v.Target == 0 || v.Missing != "" {
		return false, false
	}
	if v.AtMost {
		return v.Ratio <= v.Target, true
	}
	return v.Ratio >= v.Target, true
}

// Judge takes the ratio of each round, and their median.
func (r *Results) Judge(c Comparison) Verdict {
	v := Verdict{Comparison: c}
	v.Name = cmp.Or(c.Name, c.Against)
	for round, s := range r.Samples[c.Of] {
		base, ok := c.Figure, true
		if c.Against != "" {
			ok = round < len(r.Samples[c.Against])
			if ok {
				base, ok = r.Samples[c.Against][round][c.Metric]
			}
		}
		mine, has := s[c.Metric]
		if !ok || !has || mine == 0 || base == 0 {
			continue
		}
		if c.Inverse {
			mine, base = base, mine
		}
		v.Ratios = append(v.Ratios, mine/base)
	}
	v.Ratio = c.Metric.over(v.Ratios)
	v.Missing = cmp.Or(r.Missing[c.Of], r.Missing[c.Against])
	if len(v.Ratios) == 0 {
		v.Missing = cmp.Or(v.Missing, "not measured")
	}
	return v
}
