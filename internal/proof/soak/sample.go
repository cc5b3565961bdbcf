package soak

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Sample is what is there at a rest: no permit is held, no call is under way, and outcomes have expired.
type Sample struct {
	Heap       float64 // of this process after garbage collection, in bytes
	Goroutines float64 // of this process
	Keys       float64 // in etcd
	Leases     float64 // in etcd
	Watches    float64 // at etcd
	EtcdHeap   float64 // of etcd after garbage collection, in bytes
	EtcdRSS    float64 // resident memory of etcd's process, in bytes
	EtcdDB     float64 // of etcd's database, in use, in bytes
}

// OfThisProcess returns a sample of this process alone.
func OfThisProcess() Sample {
	for range 3 { // what a pool holds survives two; what cleanups and finalizers free takes one more
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Sample{Heap: float64(m.HeapAlloc), Goroutines: float64(runtime.NumGoroutine())}
}

// quantity is one figure of a sample.
type quantity struct {
	name string
	of   func(Sample) float64
	most float64 // the part by which it may have grown; below zero it is printed alone
	unit float64
	form string
}

// Flat is by which part a quantity may grow between two rests.
const Flat = 0.02

// quantities are those of a sample. What etcd has for each session or name cannot grow at all.
var quantities = []quantity{
	{"heap of the clients, MB", func(s Sample) float64 { return s.Heap }, Flat, 1e6, "%.2f"},
	{"goroutines of the clients", func(s Sample) float64 { return s.Goroutines }, Flat, 1, "%.0f"},
	{"keys in etcd", func(s Sample) float64 { return s.Keys }, Flat, 1, "%.0f"},
	{"leases in etcd", func(s Sample) float64 { return s.Leases }, Flat, 1, "%.0f"},
	{"watches at etcd", func(s Sample) float64 { return s.Watches }, Flat, 1, "%.0f"},
	{"heap of etcd, MB", func(s Sample) float64 { return s.EtcdHeap }, Flat, 1e6, "%.2f"},
	{"resident memory of etcd, MB", func(s Sample) float64 { return s.EtcdRSS }, -1, 1e6, "%.1f"},
	{"database of etcd in use, MB", func(s Sample) float64 { return s.EtcdDB }, -1, 1e6, "%.2f"},
}

// String returns the sample in a line.
func (s Sample) String() string {
	var all []string
	for _, q := range quantities {
		all = append(all, q.name+" "+fmt.Sprintf(q.form, q.of(s)/q.unit))
	}
	return strings.Join(all, "; ")
}

// Median returns the median of each quantity.
func Median(all []Sample) Sample {
	of := func(get func(Sample) float64) float64 {
		var values []float64
		for _, s := range all {
			values = append(values, get(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	q := quantities
	return Sample{of(q[0].of), of(q[1].of), of(q[2].of), of(q[3].of), of(q[4].of), of(q[5].of), of(q[6].of), of(q[7].of)}
}

// Row is one quantity at both ends.
type Row struct {
	Name        string
	First, Last string
	Ratio       float64 // 0 if there was nothing at first
	Grown       bool    // by more than it may
	Bound       bool    // there is a bound

	of func(Sample) float64
}

// CompareAll compares the first rest with the last one. What was as much or more at a rest between has not grown, but
// varies: a count of forty keys does so by more than 2 %.
func CompareAll(rests []Sample) (rows []Row) {
	last := rests[len(rests)-1]
	for _, r := range Compare(rests[0], last) {
		for _, between := range rests[1 : len(rests)-1] {
			r.Grown = r.Grown && r.of(last) > r.of(between)
		}
		rows = append(rows, r)
	}
	return rows
}

// Compare compares an early rest with a late one. Quantities that neither has are left out.
func Compare(first, last Sample) (rows []Row) {
	for _, q := range quantities {
		a, b := q.of(first), q.of(last)
		if a == 0 && b == 0 {
			continue
		}
		r := Row{Name: q.name, First: fmt.Sprintf(q.form, a/q.unit), Last: fmt.Sprintf(q.form, b/q.unit), Bound: q.most >= 0, of: q.of}
		r.Grown = r.Bound && b > a*(1+q.most)
		if a > 0 {
			r.Ratio = b / a
		}
		rows = append(rows, r)
	}
	return rows
}
