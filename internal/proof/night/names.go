package main

import (
	"fmt"
	"slices"
)

// item is one of the names of the fleet.
type item struct {
	kind, name string
	limit      int      // of a semaphore
	homes      []string // the two processes that use it
}

// nodes are the processes.
var nodes = []string{"node-1", "node-2", "node-3", "node-4"}

// kinds are the kinds of names, with how many of each a whole fleet has: 300.
var kinds = []struct {
	kind  string
	words []string
	each  int
}{
	{"semaphore", []string{"charge", "export", "import", "render", "upload"}, 20},
	{"mutex", []string{"ledger", "report"}, 20},
	{"election", []string{"shard"}, 30},
	{"limiter", []string{"api", "search"}, 15},
	{"rate", []string{"mail", "push"}, 15},
	{"job", []string{"nightly", "sweep"}, 25},
	{"store", []string{"orders", "refunds"}, 10},
}

// The limits of semaphores. One in ten is wide: it has many callers, which need most of its limit.
const narrow, wide = 2, 8

// fleetOf returns the names of a fleet, of each kind and word one out of part.
func fleetOf(part int) (all []item) {
	for _, k := range kinds {
		for _, word := range k.words {
			for n := range max(2, k.each/part) {
				i := len(all)
				one := item{kind: k.kind, name: fmt.Sprintf("%s-%02d", word, n+1), homes: []string{nodes[i%len(nodes)], nodes[(i+1)%len(nodes)]}}
				if k.kind == "semaphore" {
					one.limit = narrow
					if n%10 == 0 {
						one.limit = wide
					}
				}
				all = append(all, one)
			}
		}
	}
	return all
}

// at reports whether a process uses the name.
func (i item) at(node string) bool { return slices.Contains(i.homes, node) }

// String is the name as the console and the command write it.
func (i item) String() string { return i.kind + "/" + i.name }
