package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits of one cell in one round. They are variables for tests.
var (
	cellLimit = 90 * time.Second // then its context ends
	cellGrace = 30 * time.Second // then it is abandoned, as are the callers that do not heed their context
)

// Run measures all groups in rounds. progress is called before each cell.
//
// If a cell fails or takes too long, its rows say so, it is not measured again, and the other cells are
// measured all the same; the error joins what has failed. The results are good also then, unless ctx
// has ended.
func Run(ctx context.Context, groups []Group, rounds int, progress func(round int, group, cell string)) (*Results, error) {
	r := NewResults()
	var failed []error
	for round := range rounds {
		for _, g := range groups {
			if g.Rounds > 0 && round >= g.Rounds {
				continue
			}
			failed = append(failed, r.group(ctx, g, round, progress)...)
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
		}
	}
	return r, errors.Join(failed...)
}

func (r *Results) group(ctx context.Context, g Group, round int, progress func(int, string, string)) (failed []error) {
	cells, end, err := g.Cells(ctx)
	if err != nil {
		for _, c := range g.Compare {
			r.fail(c.Of, err)
		}
		return []error{fmt.Errorf("%s, round %d: %w", g.Name, round+1, err)}
	}
	defer end()
	for _, c := range cells {
		for i, id := range c.IDs {
			if !slices.Contains(r.Order, id) {
				r.Order = append(r.Order, id)
			}
			if i < len(c.Points) {
				r.Points[id] = c.Points[i]
			}
		}
	}
	for _, c := range Turn(cells, round) {
		if r.Missing[c.IDs[0]] != "" || ctx.Err() != nil {
			continue
		}
		progress(round, g.Name, c.IDs[0])
		samples, err := c.within(ctx)
		if u, ok := err.(Unavailable); ok {
			for _, id := range c.IDs {
				r.Missing[id] = string(u)
			}
			continue
		}
		if err != nil {
			for _, id := range c.IDs {
				r.fail(id, err)
			}
			failed = append(failed, fmt.Errorf("%s, round %d: %w", c.IDs[0], round+1, err))
			continue
		}
		for i, id := range c.IDs {
			all := r.Samples[id]
			for len(all) <= round {
				all = append(all, nil)
			}
			all[round] = samples[i]
			r.Samples[id] = all
		}
	}
	return failed
}

// fail says in a cell's rows why it was not measured, in one line.
func (r *Results) fail(id string, err error) {
	line, _, _ := strings.Cut(err.Error(), "\n")
	r.Missing[id] = "failed: " + strings.ReplaceAll(line, "|", "/")
}

// within runs the cell within its limits.
func (c Cell) within(ctx context.Context) ([]Sample, error) {
	late := fmt.Errorf("not measured within %v", cellLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, cellLimit, late)
	defer cancel()
	type result struct {
		samples []Sample
		err     error
	}
	done := make(chan result, 1)
	go func() {
		samples, err := c.Run(ctx)
		done <- result{samples, err}
	}()
	ended := func(r result) ([]Sample, error) {
		if r.err != nil && ctx.Err() != nil {
			r.err = context.Cause(ctx) // it is why everything else has failed
		}
		return r.samples, r.err
	}
	select {
	case r := <-done:
		return ended(r)
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return ended(r)
	case <-time.After(cellGrace):
		return nil, fmt.Errorf("%w; did not end within %v after that", context.Cause(ctx), cellGrace)
	}
}
