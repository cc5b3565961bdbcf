package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Line is one line of the file for machines: the machine, a sample, or a comparison.
type Line struct {
	Machine *Machine `json:"machine,omitempty"`

	Cell   string `json:"cell,omitempty"`
	Point  *Point `json:"point,omitempty"`
	Round  int    `json:"round,omitempty"` // from 1
	Sample Sample `json:"sample,omitempty"`

	Work    string    `json:"work,omitempty"`
	Of      string    `json:"of,omitempty"`
	Against string    `json:"against,omitempty"`
	Metric  Metric    `json:"metric,omitempty"`
	Ratio   float64   `json:"ratio,omitempty"`
	Ratios  []float64 `json:"ratios,omitempty"`
	Target  string    `json:"target,omitempty"`
	Reached *bool     `json:"reached,omitempty"`
	Missing string    `json:"missing,omitempty"`
}

// Machine is where and when it was measured.
type Machine struct {
	Date   string  `json:"date"`
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	OS     string  `json:"os"`
	Go     string  `json:"go"`
	Etcd   string  `json:"etcd"`
	Redis  string  `json:"redis"`
	Fsync  float64 `json:"fsync_ms"` // median of a write of 4 KB and its fsync, where the servers write
	Rounds int     `json:"rounds"`
	Each   string  `json:"each"` // how long each cell is measured
	Note   string  `json:"note,omitempty"`
}

// Caption says in a line what the figures are of.
func (m Machine) Caption() string {
	return fmt.Sprintf("%s; %s, %d cores; etcd %s, Redis %s; fsync %s ms; medians of %d × %s%s",
		m.Date, m.CPU, m.Cores, m.Etcd, m.Redis, Figure(m.Fsync), m.Rounds, m.Each, m.note())
}

func (m Machine) note() string {
	if m.Note == "" {
		return ""
	}
	return "; " + m.Note
}

// Lines returns everything for machines, one JSON object a line.
func Lines(w io.Writer, m Machine, r *Results, verdicts []Verdict) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	lines := []Line{{Machine: &m}}
	for _, id := range r.Order {
		for round, s := range r.Samples[id] {
			l := Line{Cell: id, Round: round + 1, Sample: s}
			if p, ok := r.Points[id]; ok {
				l.Point = &p
			}
			lines = append(lines, l)
		}
		if missing := r.Missing[id]; missing != "" {
			lines = append(lines, Line{Cell: id, Missing: missing})
		}
	}
	for _, v := range verdicts {
		l := Line{Work: v.Work, Of: v.Of, Against: v.Name, Metric: v.Metric, Ratio: v.Ratio, Ratios: v.Ratios, Target: v.target(), Missing: v.Missing}
		if reached, known := v.Reached(); known {
			l.Reached = &reached
		}
		lines = append(lines, l)
	}
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return err
		}
	}
	return nil
}

// Read reads what Lines has written.
func Read(r io.Reader) (Machine, *Results, []Line, error) {
	var m Machine
	var rest []Line
	results := NewResults()
	dec := json.NewDecoder(r)
	for {
		var l Line
		if err := dec.Decode(&l); err == io.EOF {
			return m, results, rest, nil
		} else if err != nil {
			return m, nil, nil, err
		}
		switch {
		case l.Machine != nil:
			m = *l.Machine
		case l.Cell != "" && l.Missing != "":
			results.Missing[l.Cell] = l.Missing
			if len(results.Samples[l.Cell]) == 0 {
				results.Order = append(results.Order, l.Cell)
			}
		case l.Cell != "":
			if len(results.Samples[l.Cell]) == 0 {
				results.Order = append(results.Order, l.Cell)
			}
			results.Samples[l.Cell] = append(results.Samples[l.Cell], l.Sample)
			if l.Point != nil {
				results.Points[l.Cell] = *l.Point
			}
		default:
			rest = append(rest, l)
		}
	}
}

func (v Verdict) target() string {
	switch {
	case v.Target == 0:
		return ""
	case v.AtMost:
		return "≤ " + Figure(v.Target)
	default:
		return "≥ " + Figure(v.Target)
	}
}

// Figure returns three significant digits, or all digits before the point.
func Figure(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	digits = max(digits, 0)
	s := fmt.Sprintf("%.*f", min(digits, 4), v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// rows are the table's cells: ratios first.
func rows(verdicts []Verdict) [][]string {
	all := [][]string{{"work", "against", "ratio", "spread", "target", "reached"}}
	for _, v := range verdicts {
		row := []string{v.Work, short(v.Name), "–", "", v.target(), ""}
		if v.Missing != "" {
			row[5] = v.Missing
		} else {
			row[2] = Figure(v.Ratio) + "×"
			row[3] = spread(v.Ratios)
			if reached, known := v.Reached(); known {
				row[5] = map[bool]string{true: "yes", false: "no"}[reached]
			}
		}
		all = append(all, row)
	}
	return all
}

// short returns the part of a cell's ID after its kind.
func short(id string) string {
	_, after, found := strings.Cut(id, ": ")
	if !found {
		return id
	}
	return after
}

// columns are the metrics of the second table, with their headings.
var columns = []struct {
	metric  Metric
	heading string
}{
	{Rate, "per s"}, {Capacity, "capacity"}, {EachTime, "each, µs"}, {Allocs, "allocs"},
	{WaitMedian, "wait p50, ms"}, {Wait99, "p99"}, {WaitLongest, "longest"}, {Unfair, "longest/mean"},
	{PassMedian, "hand-over p50, ms"}, {Pass99, "p99"},
	{IdleMedian, "idle slot p50, ms"}, {IdleLongest, "longest"}, {WorstPut, "worst Put, ms"},
	{Events, "events/op"}, {Reads, "reads/op"}, {ServerCPU, "server µs/op"},
	{ClientCPU, "client µs/op"}, {BothCPU, "both, µs/op"}, {Heap, "heap, bytes"}, {Stacks, "stacks, bytes"},
	{Received, "requests/s"}, {ServerHeap, "etcd, kB each"}, {ClientHeap, "process, kB each"}, {Watches, "watches each"},
}

// figures are the absolute figures of the cells of a group; only columns that one of them has.
func figures(r *Results, ids []string) [][]string {
	kind, _, _ := strings.Cut(ids[0], ":")
	head := []string{kind}
	var used []Metric
	for _, c := range columns {
		for _, id := range ids {
			if _, ok := r.Of(id, c.metric); ok {
				head, used = append(head, c.heading), append(used, c.metric)
				break
			}
		}
	}
	all := [][]string{head}
	for _, id := range ids {
		row := []string{short(id)}
		for _, m := range used {
			if v, ok := r.Of(id, m); ok {
				row = append(row, Figure(v))
			} else {
				row = append(row, "–")
			}
		}
		if missing := r.Missing[id]; missing != "" {
			row = []string{short(id), missing}
		}
		all = append(all, row)
	}
	return all
}

// Only returns the cells of some kinds.
func (r *Results) Only(kinds ...string) *Results {
	some := *r
	some.Order = nil
	for _, id := range r.Order {
		if kind, _, _ := strings.Cut(id, ":"); slices.Contains(kinds, kind) {
			some.Order = append(some.Order, id)
		}
	}
	return &some
}

// kinds returns the cells by their kind, the part of their ID before the first colon.
func (r *Results) kinds() (kinds []string, of map[string][]string) {
	of = map[string][]string{}
	for _, id := range r.Order {
		kind, _, _ := strings.Cut(id, ":")
		if of[kind] == nil {
			kinds = append(kinds, kind)
		}
		of[kind] = append(of[kind], id)
	}
	return kinds, of
}

// Table writes the report for people: ratios first, absolute figures after.
func Table(w io.Writer, m Machine, r *Results, verdicts []Verdict) error {
	fmt.Fprintf(w, "%s, %s, %d cores, %s, %s\netcd %s, Redis %s, fsync %s ms; %d rounds of %s each, medians%s\n\n",
		m.Date, m.CPU, m.Cores, m.OS, m.Go, m.Etcd, m.Redis, Figure(m.Fsync), m.Rounds, m.Each, m.note())
	if len(verdicts) > 0 {
		if err := aligned(w, rows(verdicts)); err != nil {
			return err
		}
	}
	kinds, of := r.kinds()
	for _, kind := range kinds {
		fmt.Fprintln(w)
		if err := aligned(w, figures(r, of[kind])); err != nil {
			return err
		}
	}
	return nil
}

func aligned(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// Markdown writes the same as tables of a page.
func Markdown(w io.Writer, m Machine, r *Results, verdicts []Verdict) error {
	fmt.Fprintf(w, "%s; %s, %d cores; %s, %s; etcd %s, Redis %s; a write of 4 KB with fsync takes %s ms; medians of %d rounds, each cell measured for %s%s.\n\n",
		m.Date, m.CPU, m.Cores, m.OS, m.Go, m.Etcd, m.Redis, Figure(m.Fsync), m.Rounds, m.Each, m.note())
	if len(verdicts) > 0 {
		Grid(w, rows(verdicts))
	}
	kinds, of := r.kinds()
	for _, kind := range kinds {
		fmt.Fprintln(w)
		Grid(w, figures(r, of[kind]))
	}
	return nil
}

// Grid writes a table of a page, its head first.
func Grid(w io.Writer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintln(w, "| "+strings.Join(row, " | ")+" |")
		if i == 0 {
			fmt.Fprintln(w, strings.Repeat("|---", len(row))+"|")
		}
	}
}
