package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		all  []int
		want int
	}{{nil, 0}, {[]int{7}, 7}, {[]int{3, 1, 2}, 2}, {[]int{9, 1, 1, 1, 8}, 1}} {
		given := slices.Clone(c.all)
		if got := Median(c.all); got != c.want || !slices.Equal(c.all, given) {
			t.Errorf("median of %v is %d, not %d; afterwards %v", given, got, c.want, c.all)
		}
	}
	if got := Quantile([]int{5, 1, 4, 2, 3}, 1); got != 5 {
		t.Errorf("the longest is %d", got)
	}
}

// Each round measures each cell once, and no cell is always first.
func TestTurn(t *testing.T) {
	first := map[int]bool{}
	for round := range 6 {
		got := Turn([]int{1, 2, 3}, round)
		first[got[0]] = true
		if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, []int{1, 2, 3}) {
			t.Errorf("round %d measures %v", round, got)
		}
	}
	if len(first) != 3 {
		t.Errorf("only %v are ever first", first)
	}
}

// fixed is a cell with a rate for each round.
func fixed(id string, rates ...float64) Cell {
	round := 0
	return Cell{IDs: []string{id}, Run: func(context.Context) ([]Sample, error) {
		round++
		return []Sample{{Rate: rates[round-1]}}, nil
	}}
}

func group(cells []Cell, compare ...Comparison) Group {
	return Group{Name: "g", Cells: func(context.Context) ([]Cell, func(), error) { return cells, func() {}, nil }, Compare: compare}
}

// The ratio is the median of the rounds' ratios, so it holds while the machine's speed drifts.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	compare := Comparison{Work: "w", Of: "a", Against: "b", Metric: Rate, Target: 2}
	// The machine is ten times as slow in the second round.
	g := group([]Cell{fixed("a", 300, 30, 320), fixed("b", 100, 10, 100)}, compare)
	r, err := Run(t.Context(), []Group{g}, 3, func(int, string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	v := r.Judge(compare)
	if reached, known := v.Reached(); v.Ratio != 3 || len(v.Ratios) != 3 || !reached || !known {
		t.Errorf("%+v", v)
	}
	compare.AtMost = true
	if reached, _ := r.Judge(compare).Reached(); reached {
		t.Error("a ratio of 3 is at most 2")
	}
	compare.Inverse = true
	if v := r.Judge(compare); Figure(v.Ratio) != "0.333" {
		t.Errorf("inverse: %v", v.Ratio)
	}
	if v := r.Judge(Comparison{Of: "a", Figure: 600, Metric: Rate}); v.Ratio != 0.5 {
		t.Errorf("against a figure: %v", v.Ratio)
	}
}

func TestMissingAndFailed(t *testing.T) {
	gone := Cell{IDs: []string{"b"}, Run: func(context.Context) ([]Sample, error) { return nil, Unavailable("no redis-server") }}
	compare := Comparison{Work: "w", Of: "a", Against: "b", Metric: Rate, Target: 2}
	r, err := Run(t.Context(), []Group{group([]Cell{fixed("a", 1), gone})}, 1, func(int, string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	v := r.Judge(compare)
	if _, known := v.Reached(); known || v.Missing != "no redis-server" {
		t.Errorf("%+v", v)
	}
	var table bytes.Buffer
	if err := Table(&table, Machine{}, r, []Verdict{v}); err != nil || strings.Count(table.String(), "no redis-server") != 2 {
		t.Errorf("%v\n%s", err, &table)
	}
	broken := Cell{IDs: []string{"c"}, Run: func(context.Context) ([]Sample, error) { return nil, errors.New("broken") }}
	if _, err := Run(t.Context(), []Group{group([]Cell{broken})}, 1, func(int, string, string) {}); err == nil || !strings.Contains(err.Error(), "c, round 1: broken") {
		t.Errorf("the error of a cell: %v", err)
	}
}

func TestLinesAreReadBack(t *testing.T) {
	compare := Comparison{Work: "w", Of: "k: a", Against: "k: b", Metric: Rate, Target: 2}
	r, err := Run(t.Context(), []Group{group([]Cell{fixed("k: a", 300, 330), fixed("k: b", 100, 110)})}, 2, func(int, string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	var file, before, after bytes.Buffer
	m := Machine{Date: "2026-01-02", CPU: "x", Cores: 2, Fsync: 0.5, Rounds: 2, Each: "1s", Note: "busy"}
	if err := Lines(&file, m, r, []Verdict{r.Judge(compare)}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(file.String(), `"ratio":3,"ratios":[3,3],"target":"≥ 2","reached":true`) {
		t.Errorf("lines:\n%s", &file)
	}
	read, again, rest, err := Read(&file)
	if err != nil || read != m || len(rest) != 1 {
		t.Fatalf("%+v %v %v", read, rest, err)
	}
	_ = Table(&before, m, r, nil)
	_ = Table(&after, read, again, nil)
	if before.String() != after.String() {
		t.Errorf("written\n%s\nread\n%s", &before, &after)
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123456: "0.0123", 1: "1", 1.5: "1.5", 1.0 / 3: "0.333", 12.345: "12.3", 999.6: "1000", 12345.6: "12346", 100: "100"} {
		if got := Figure(v); got != want {
			t.Errorf("%v is %q, not %q", v, got, want)
		}
	}
}

func TestTables(t *testing.T) {
	compare := Comparison{Work: "8 processes", Of: "k: a", Against: "k: b", Name: "peer", Metric: Rate, Target: 4}
	r, err := Run(t.Context(), []Group{group([]Cell{fixed("k: a", 300), fixed("k: b", 100)})}, 1, func(int, string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	verdicts := []Verdict{r.Judge(compare)}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"table": func(b *bytes.Buffer) error { return Table(b, Machine{}, r, verdicts) },
		"page":  func(b *bytes.Buffer) error { return Markdown(b, Machine{}, r, verdicts) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		at := -1
		for _, want := range []string{"8 processes", "peer", "3×", "≥ 4", "no", "per s", "300"} { // the ratio comes first
			next := strings.Index(b.String(), want)
			if next <= at {
				t.Errorf("%s: %q is missing or too early:\n%s", name, want, &b)
			}
			at = next
		}
	}
}

// A cell that fails, or does not end, says so in its row and is not measured again; the others are.
func TestTheOthersAreMeasured(t *testing.T) {
	defer func(limit, grace time.Duration) { cellLimit, cellGrace = limit, grace }(cellLimit, cellGrace)
	cellLimit, cellGrace = 10*time.Millisecond, 10*time.Millisecond
	runs := 0
	broken := Cell{IDs: []string{"k: broken"}, Run: func(context.Context) ([]Sample, error) {
		runs++
		return nil, errors.New("no space | left\non the device")
	}}
	slow := Cell{IDs: []string{"k: slow"}, Run: func(ctx context.Context) ([]Sample, error) { <-ctx.Done(); return nil, ctx.Err() }}
	free := make(chan struct{})
	defer close(free)
	stuck := Cell{IDs: []string{"k: stuck"}, Run: func(context.Context) ([]Sample, error) { <-free; return nil, nil }}
	compare := Comparison{Of: "k: a", Against: "k: broken", Metric: Rate}
	none := Group{Name: "none", Compare: []Comparison{{Of: "n: a"}}, Cells: func(context.Context) ([]Cell, func(), error) { return nil, nil, errors.New("no etcd") }}
	r, err := Run(t.Context(), []Group{none, group([]Cell{broken, slow, stuck, fixed("k: a", 1, 2)})}, 2, func(int, string, string) {})
	for _, want := range []string{"no space", "slow, round 1: not measured within 10ms", "did not end within 10ms", "none, round 1: no etcd"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error has no %q: %v", want, err)
		}
	}
	if runs != 1 || len(r.Samples["k: a"]) != 2 {
		t.Errorf("the cell that fails was measured %d times, the other one %d times", runs, len(r.Samples["k: a"]))
	}
	if v := r.Judge(compare); v.Missing != "failed: no space / left" {
		t.Errorf("%+v", v)
	}
	if v := r.Judge(none.Compare[0]); v.Missing != "failed: no etcd" {
		t.Errorf("%+v", v)
	}
	var file, before, after bytes.Buffer
	_, _ = Lines(&file, Machine{}, r, nil), Table(&before, Machine{}, r, nil)
	_, again, _, _ := Read(&file)
	_ = Table(&after, Machine{}, again, nil)
	if before.String() != after.String() || !strings.Contains(before.String(), "not measured within") {
		t.Errorf("written\n%s\nread\n%s", &before, &after)
	}
}

// Ctrl-C ends the run with its cause; nothing more is measured.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := Cell{IDs: []string{"k: a"}, Run: func(context.Context) ([]Sample, error) { cancel(); return nil, ctx.Err() }}
	next := Cell{IDs: []string{"k: b"}, Run: func(context.Context) ([]Sample, error) { t.Error("measured"); return nil, nil }}
	if _, err := Run(ctx, []Group{group([]Cell{first, next})}, 1, func(int, string, string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The ratio of two builds is the median of the ratios of pairs, not that of the medians, and of a cell that one of them
// lacks there is none.
func TestPairs(t *testing.T) {
	var pairs []Pair
	for _, rates := range [][2]float64{{100, 200}, {1000, 1500}, {10, 300}} {
		p := Pair{NewResults(), NewResults()}
		for i, r := range []*Results{p.Former, p.Latter} {
			r.Order = []string{"k: a", fmt.Sprint("k: only ", i)}
			r.Samples["k: a"], r.Samples[r.Order[1]] = []Sample{{Rate: rates[i]}}, []Sample{{Rate: 7}}
		}
		pairs = append(pairs, p)
	}
	var b bytes.Buffer
	if err := Pairs(&b, pairs); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || strings.Join(strings.Fields(lines[1]), " ") != "k: a per_s 100 300 2× 1.5 … 30" {
		t.Errorf("%s", &b)
	}
}
