package measure

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
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
	if _, err := Run(t.Context(), []Group{group([]Cell{broken})}, 1, func(int, string, string) {}); err == nil || !strings.Contains(err.Error(), "c: broken") {
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
	m := Machine{Date: "2026-01-02", CPU: "x", Cores: 2, Fsync: 0.5, Rounds: 2, Each: "1s"}
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
