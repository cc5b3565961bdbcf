package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// planned is a fault of a night, with what it befalls and when.
type planned struct {
	fault
	on    item
	after time.Duration // since the night has begun
}

// victims returns what a fault can befall.
func (f fault) victims(names []item) (all []item) {
	switch f.kind {
	case "":
		return []item{{name: "etcd", homes: nodes[:1]}}
	case "node":
		for _, node := range nodes {
			all = append(all, item{kind: "node", name: node, homes: []string{node}})
		}
		return all
	}
	return slices.DeleteFunc(slices.Clone(names), func(i item) bool { return i.kind != f.kind || i.limit != f.limit })
}

// plan chooses count faults out of a list, each with a name of its own, at times within a span, in the order of their
// times. Those that restart a process come first, since a restart ends others; one that touches all names comes last.
func plan(seed uint64, list []fault, names []item, count int, within time.Duration) (all []planned) {
	random := rand.New(rand.NewPCG(seed, seed))
	taken := map[string]bool{}
	for _, at := range random.Perm(len(list))[:min(count, len(list))] {
		free := slices.DeleteFunc(list[at].victims(names), func(i item) bool { return taken[i.name] })
		on := free[random.IntN(len(free))]
		taken[on.name] = true
		all = append(all, planned{fault: list[at], on: on, after: time.Duration(random.Int64N(max(1, int64(within))))})
	}
	times := make([]time.Duration, len(all))
	for i, p := range all {
		times[i] = p.after
	}
	slices.Sort(times)
	slices.SortStableFunc(all, func(a, b planned) int { return cmp.Compare(a.turn, b.turn) })
	for i := range all {
		all[i].after = times[i]
	}
	return all
}
