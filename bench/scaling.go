package main

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/work"
)

// fleet is how many processes the arithmetic of docs/scaling.md is for.
const fleet = 10_000

// scalingPage writes the figures of a file of `make scaling`, and the arithmetic with them, into docs/scaling.md.
func scalingPage(file, page string) error {
	m, r, err := read(file)
	if err != nil {
		return err
	}
	return rewrite(page, func(b *bytes.Buffer) error {
		fmt.Fprintf(b, "%s; %s, %d cores for etcd and clients; etcd %s, Raft with fsync (%s ms); medians of %d × %s", m.Date, m.CPU, m.Cores, m.Etcd, measure.Figure(m.Fsync), m.Rounds, m.Each)
		if m.Note != "" {
			fmt.Fprint(b, "; ", m.Note)
		}
		fmt.Fprint(b, ".\n\n")
		capacities(b, r)
		eachMore(b, r)
		arithmetic(b, r)
		return nil
	})
}

// figure returns a metric of a row with clusters of that size, as the page shows it.
func figure(r *measure.Results, id string, m measure.Metric, scale float64) string {
	v, ok := r.Of(id, m)
	if !ok {
		return "–"
	}
	return measure.Figure(v * scale)
}

// ofCluster is the ID of a row with a cluster of that size.
func ofCluster(members int, row string) string { return work.Clusters[members] + ": " + row }

// capacities is what one cluster does, and what each operation costs it.
func capacities(w io.Writer, r *measure.Results) {
	fmt.Fprint(w, "| work | one member: per s | p99, ms | etcd, µs each | three members: per s | p99, ms | etcd, µs each |\n|---|---|---|---|---|---|---|\n")
	for _, row := range []string{work.FreePermits, work.HotName, work.NewRequests, work.Ticks, work.Sessions, work.Renewals} {
		fmt.Fprintf(w, "| %s |", row)
		for _, members := range []int{1, 3} {
			id := ofCluster(members, row)
			fmt.Fprintf(w, " %s | %s | %s |", figure(r, id, measure.Rate, 1), figure(r, id, measure.Wait99, 1), figure(r, id, measure.ServerCPU, 1))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "| %s: requests |", work.IdleProcesses)
	for _, members := range []int{1, 3} {
		id := ofCluster(members, work.IdleProcesses)
		fmt.Fprintf(w, " %s | – | %s |", figure(r, id, measure.Received, 1), figure(r, id, measure.ServerCPU, 1))
	}
	fmt.Fprint(w, "\n\n")
}

// eachMore is what is in memory for each thing.
func eachMore(w io.Writer, r *measure.Results) {
	fmt.Fprint(w, "| one more | memory of etcd, kB | of its process, kB | watches |\n|---|---|---|---|\n")
	for _, row := range []string{work.Connected, work.Held, work.Waiting, work.Semaphore, work.Outcome} {
		id := "one more: " + row
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", row, figure(r, id, measure.ServerHeap, 1), figure(r, id, measure.ClientHeap, 1), figure(r, id, measure.Watches, 1))
	}
	fmt.Fprintln(w)
}

// load is one part of what a fleet asks of its cluster.
type load struct {
	what string
	row  string
	rate float64 // operations per second
}

// arithmetic is what a fleet needs of a cluster, by the figures above.
func arithmetic(w io.Writer, r *measure.Results) {
	received, _ := r.Of(ofCluster(1, work.IdleProcesses), measure.Received)
	idle := received / work.IdleSessions * fleet
	loads := []load{
		{"idle, TTL 15 s: requests", work.IdleProcesses, idle},
		{"idle, TTL 60 s: requests", work.IdleProcesses, idle / 4},
		{"a permit for each process and minute", work.FreePermits, fleet / time.Minute.Seconds()},
		{"a new request for each process and minute, by 512 at a time", work.NewRequests, fleet / time.Minute.Seconds()},
		{"1,000 jobs that run once a minute", work.Ticks, 1000 / time.Minute.Seconds()},
		{"all processes replaced within 5 minutes", work.Sessions, fleet / (5 * time.Minute).Seconds()},
	}
	fmt.Fprint(w, "| 10,000 processes | per s | cores of etcd, one member | of three members together |\n|---|---|---|---|\n")
	for _, l := range loads {
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", l.what, measure.Figure(l.rate), cores(r, 1, l), cores(r, 3, l))
	}
	heap, _ := r.Of("one more: "+work.Connected, measure.ServerHeap)
	fmt.Fprintf(w, "\nMemory of etcd for 10,000 sessions, if all were connected to it: %s MB.\n", measure.Figure(heap*fleet/1e3))
}

// cores is the processor time of etcd for a load, in processors.
func cores(r *measure.Results, members int, l load) string {
	each, ok := r.Of(ofCluster(members, l.row), measure.ServerCPU)
	if !ok {
		return "–"
	}
	return measure.Figure(each * l.rate / 1e6)
}
