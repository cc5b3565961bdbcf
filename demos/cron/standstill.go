package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/hostclock"
)

// On a busy machine a process, or etcd, gets no time to run. If that lasts, ticks are late and
// leases as short as these expire, and the code is not to blame. So the program measures standstills,
// and the judge excuses what they explain.

// Standstills are measured in steps of pace; those above tolerated are reported.
const (
	pace      = 20 * time.Millisecond
	tolerated = 100 * time.Millisecond
)

// watchStalls reports when this process gets no time to run.
func watchStalls(ctx context.Context, report func(event)) {
	watch(ctx, evStall, report, func() {})
}

// watchEtcd reports when etcd does not answer.
func watchEtcd(ctx context.Context, client *clientv3.Client, key string, report func(event)) {
	watch(ctx, evSilent, report, func() { _, _ = client.Get(ctx, key) })
}

// watch reports when a probe takes too long.
func watch(ctx context.Context, kind string, report func(event), probe func()) {
	for last := hostclock.Now(); ctx.Err() == nil; {
		time.Sleep(pace)
		probe()
		now := hostclock.Now()
		if took := now - last; took > int64(tolerated) {
			report(event{Kind: kind, At: now, Took: took})
		}
		last = now
	}
}

// standstill is a time, on the host's clock, in which a process or etcd got no time to run.
type standstill struct{ from, to int64 }

// standstills returns those that the program did not cause, and how long the longest was.
func standstills(events []event, members map[string]*member) (all []standstill, longest time.Duration) {
	for _, e := range events {
		s, caused := standstill{e.At - e.Took, e.At}, e.Kind != evStall && e.Kind != evSilent
		for i := range members[e.worker].stops() {
			p := members[e.worker].pauses[i]
			caused = caused || s.from <= p[1] && s.to >= p[0]
		}
		if !caused {
			all, longest = append(all, s), max(longest, time.Duration(e.Took))
		}
	}
	return all, longest
}

// hostTime converts times of the wall clock to the host's clock.
type hostTime struct {
	wall time.Time
	host int64
}

func (h hostTime) at(t time.Time) int64 { return h.host + int64(t.Sub(h.wall)) }
