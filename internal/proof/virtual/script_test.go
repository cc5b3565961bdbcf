package virtual

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// script is what rapid makes up: a few processes, and what happens one after the other.
type script struct {
	ttl       time.Duration
	margin    time.Duration
	processes int
	limit     int
	total     int    // of the limiter; 0: it has none
	far       bool   // a request is far as soon as another waits before it
	key       string // of which most steps are
	steps     []step
}

// step is one thing that begins after a pause. What a field means depends on what is
// done.
type step struct {
	pause  time.Duration
	who    int // process
	do     action
	key    string        // of the limiter; the semaphore if it is empty
	all    bool          // the limiter's total instead
	n      int           // weight, new limit, number of messages
	id     string        // of a request
	ctx    time.Duration // bound of the call
	d      time.Duration // for how long it is held, or the fault lasts
	bound  time.Duration // Wait, or MaxHold
	method string        // of the messages that meet a fate
	fate   fate
}

type action string

// What processes do.
const (
	acquire    action = "acquire"
	try        action = "try"
	waitFor    action = "acquire with Wait"
	maxHold    action = "acquire with MaxHold"
	takeOver   action = "take over"
	setLimit   action = "set limit"
	clearLimit action = "clear limit"
	setDefault action = "set default"
	status     action = "status"
	evict      action = "evict"
	releaseID  action = "release ID"
	evictToken action = "evict token"
	reopen     action = "reopen"
)

// What goes wrong.
const (
	meet    action = "messages meet"
	stall   action = "stall"
	cut     action = "cut"
	snap    action = "break"
	leader  action = "no leader"
	compact action = "compact"
	expire  action = "expire"
	late    action = "leases end late"
	plant   action = "plant a key"
	again   action = "put a request again"
)

// gate is the name of a step's queue.
func (x step) gate() string {
	switch {
	case x.all:
		return limiter + "/total"
	case x.key == "":
		return gate
	}
	return limiter + "/key/" + x.key
}

// permitted are steps of all queues whose permits may be asked for.
func permitted(do action) []step {
	return []step{{do: do}, {do: do, key: "k"}, {do: do, key: "k1"}}
}

// queues are steps of all queues.
func queues(do action) []step { return append(permitted(do), step{do: do, all: true}) }

// ofDefault are the messages by which a watch brings a change of the default. They may be lost while
// those of a key's queue are not.
const ofDefault = "Watch of the default"

// fate is a fate of messages by its name, since scripts are printed.
type fate string

const (
	slowThere  fate = "slow there"
	slowBack   fate = "slow back"
	lostThere  fate = "request lost, error"
	lostBack   fate = "answer lost, error"
	swallowed  fate = "request lost"
	unanswered fate = "answer lost"
	lateCopy   fate = "error, applied late"
	twice      fate = "a copy comes later"
	noSpace    fate = "no space, applied"
)

var (
	people = [][]action{{acquire}, {acquire, try, waitFor, maxHold}, {setLimit, evict, takeOver, releaseID, reopen}, {setLimit, setDefault, clearLimit, status}, {evictToken}}
	// rapid prefers what comes first, the more the longer a list is: so lists are short.
	harms = [][]action{{meet}, {stall, cut, snap, leader}, {meet}, {expire, late, compact, again, plant}}
	fates = [][]fate{{lostBack, lateCopy, twice}, {slowBack, unanswered, slowThere}, {noSpace, lostThere, swallowed}}
)

func oneOf[T any](t *rapid.T, lists [][]T, label string) T {
	return rapid.SampledFrom(rapid.SampledFrom(lists).Draw(t, label)).Draw(t, label)
}

func ms(from, to int) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
}

// times are seldom long: rapid prefers what comes first.
var times = rapid.OneOf(ms(0, 50), ms(0, 3000), ms(0, 30000), ms(0, 100000))

func drawScript(t *rapid.T) script {
	s := script{
		margin:    rapid.SampledFrom([]time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond}).Draw(t, "margin"),
		ttl:       time.Duration(rapid.IntRange(5, 15).Draw(t, "TTL")) * time.Second,
		processes: rapid.IntRange(2, 4).Draw(t, "processes"), limit: rapid.IntRange(1, 3).Draw(t, "limit"),
	}
	if rapid.Bool().Draw(t, "has a total") {
		s.total = s.limit + rapid.IntRange(0, 2).Draw(t, "total")
	}
	s.far = rapid.Bool().Draw(t, "far")
	s.key = rapid.SampledFrom([]string{"", "k"}).Draw(t, "most steps")
	one := rapid.Custom(func(t *rapid.T) step { return drawStep(t, s) })
	s.steps = rapid.SliceOfN(one, 5, 30).Draw(t, "steps")
	return s
}

// drawCrowd is drawScript for a crowd of light requests.
func drawCrowd(t *rapid.T) script {
	s := script{margin: 500 * time.Millisecond, ttl: 10 * time.Second, processes: rapid.IntRange(5, 8).Draw(t, "processes"), limit: rapid.IntRange(1, 3).Draw(t, "limit"), far: true}
	one := rapid.Custom(func(t *rapid.T) step {
		if rapid.IntRange(0, 3).Draw(t, "other") == 3 {
			return drawStep(t, s)
		}
		return step{
			pause: ms(0, 100).Draw(t, "pause"), who: rapid.IntRange(0, s.processes-1).Draw(t, "who"), do: acquire, n: 1,
			d: ms(0, 3000).Draw(t, "hold"), ctx: 10*time.Second + times.Draw(t, "ctx"),
		}
	})
	s.steps = rapid.SliceOfN(one, 15, 50).Draw(t, "steps")
	return s
}

func drawStep(t *rapid.T, s script) step {
	kinds := people
	if rapid.Bool().Draw(t, "harm") {
		kinds = harms
	}
	x := step{
		pause: rapid.OneOf(ms(0, 10), ms(0, 2000), ms(0, 20000)).Draw(t, "pause"),
		who:   rapid.IntRange(0, s.processes-1).Draw(t, "who"),
		do:    oneOf(t, kinds, "do"),
	}
	x.key = rapid.SampledFrom([]string{s.key, s.key, s.key, "", "k", "k1"}).Draw(t, "key")
	switch x.do {
	case clearLimit:
		if x.key == "" {
			x.key = "k"
		}
	case setLimit, status, evictToken, again, plant:
		x.all = s.total > 0 && rapid.Bool().Draw(t, "of the total")
	default:
	}
	switch x.do {
	case evictToken:
		x.n = rapid.IntRange(0, 9).Draw(t, "which")
	case setLimit, setDefault:
		x.n = rapid.IntRange(0, 4).Draw(t, "limit")
	case evict, releaseID:
		x.id = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "ID")
	case reopen, stall, cut, leader, late:
		x.d = times.Draw(t, "for")
	case meet:
		x.n = rapid.IntRange(1, 9).Draw(t, "messages")
		x.method = rapid.SampledFrom([]string{"Txn", "", "LeaseKeepAlive", "Watch", "Range", ofDefault}).Draw(t, "method")
		x.fate = oneOf(t, fates, "fate")
		x.d = times.Draw(t, "by")
	case snap, compact, expire, plant, again, clearLimit, status:
	default:
		x.n = rapid.IntRange(1, s.limit).Draw(t, "weight")
		x.id = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "ID")
		x.d, x.bound, x.ctx = times.Draw(t, "hold"), times.Draw(t, "bound"), time.Second+times.Draw(t, "ctx")
		if x.do == takeOver {
			x.id = "a"
		}
	}
	return x
}

// String prints a script in lines that can be followed.
func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d processes, limit %d, total %d, TTL %v, margin %v, far %v\n", s.processes, s.limit, s.total, s.ttl, s.margin, s.far)
	at := time.Duration(0)
	for _, x := range s.steps {
		at += x.pause
		fmt.Fprintf(&b, "%10v  p%d %s", at, x.who, x.do)
		switch x.do {
		case meet, stall, cut, snap, leader, compact, expire, late, reopen, setDefault:
		default:
			fmt.Fprintf(&b, " of %s", x.gate())
		}
		switch x.do {
		case setLimit, setDefault, evictToken:
			fmt.Fprintf(&b, " %d", x.n)
		case evict, releaseID:
			fmt.Fprintf(&b, " %q", x.id)
		case reopen, stall, cut, leader, late:
			fmt.Fprintf(&b, " %v", x.d)
		case meet:
			fmt.Fprintf(&b, ": the next %d %s: %s, %v", x.n, x.method, x.fate, x.d)
		case snap, compact, expire, plant, again, clearLimit, status:
		default:
			fmt.Fprintf(&b, " weight %d, ID %q, for %v; ctx %v, bound %v", x.n, x.id, x.d, x.ctx, x.bound)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
