package virtual

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

const (
	prefix = "/virtual"
	queue  = "q"
	gate   = "semaphore/" + queue

	limiterName = "l"
	limiter     = "limiter/" + limiterName

	root = prefix + "/v1/test/"
)

// simulation is an etcd with some processes, and a record of what they do.
type simulation struct {
	script   script
	server   *etcdfake.Server
	recorder *history.Recorder
	tap      *history.Tap
	intruder *etcdfake.Client // without faults
	space    keyspace.Space
	writes   atomic.Int64
	all      []*process
	calls    sync.WaitGroup
	faults   sync.WaitGroup

	mu       sync.Mutex
	underWay time.Time // until then copies of messages come
}

// process is a client with a session.
type process struct {
	sim    *simulation
	rec    *history.Client
	name   string
	client *etcdfake.Client

	// turn is for one opening or closing at a time. It is not a mutex: for a goroutine that waits for
	// one, a bubble's time does not pass.
	turn chan struct{}

	mu   sync.Mutex
	sess *concurrency.Session

	fates []step // what the next messages meet; guarded by mu
}

// play runs a script to its end, and returns what was recorded. It must be called in a
// bubble.
func play(t *testing.T, s script) *history.History {
	sim := &simulation{script: s, server: etcdfake.New(t), recorder: history.NewRecorderOn(history.Virtual)}
	sim.recorder.Set(check.SettingSuite, "concurrency")
	sim.recorder.Set(check.SettingTTL, s.ttl.String())
	sim.recorder.Set(check.SettingReported, (commit.CallTimeout + time.Second).String()) // a call whose answer is lost is repeated then
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sim.intruder = sim.server.NewClient()
	defer sim.intruder.Close()
	var err error
	if sim.space, err = keyspace.New(prefix, "test"); err != nil {
		panic(err)
	}
	if sim.tap, err = history.StartTap(ctx, sim.recorder, root, sim.intruder.Client); err != nil {
		panic(err)
	}
	for i := range s.processes {
		p := &process{sim: sim, turn: make(chan struct{}, 1), name: fmt.Sprintf("p%d", i), client: sim.server.NewClient()}
		p.rec = sim.recorder.Client(p.name)
		p.client.Inject(p.fate)
		sim.all = append(sim.all, p)
		p.open(ctx)
	}
	for _, x := range s.steps {
		time.Sleep(x.pause)
		sim.step(sim.all[x.who], x)
	}
	sim.checkQuiescence(ctx)
	for _, p := range sim.all {
		_ = p.client.Close()
	}
	sim.tap.Close()
	h, _ := sim.recorder.History()
	return h
}

func (sim *simulation) wrong(rule, format string, args ...any) {
	sim.recorder.Finding(rule, false, fmt.Sprintf(format, args...))
}

// checkQuiescence ends all faults, and checks that everything works again and nothing is left.
func (sim *simulation) checkQuiescence(ctx context.Context) {
	sim.faults.Wait() // each ends what it began
	for _, p := range sim.all {
		p.mu.Lock()
		p.fates = nil
		p.mu.Unlock()
	}
	for _, x := range queues(acquire) {
		for _, key := range sim.server.Keys(root + x.gate() + "/queue/") {
			_, _ = sim.intruder.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(key), "=", 0)).Then(clientv3.OpDelete(key)).Commit()
		}
	}
	// A waiter whose event was lost finds out by the next list.
	time.Sleep(3 * sim.script.ttl)
	sim.mark(ctx, history.MarkHealthy)
	sim.calls.Wait() // every ctx ends

	for _, p := range sim.all {
		p.open(ctx)
		limits := []step{{do: setLimit}, {do: setDefault}, {do: clearLimit, key: "k"}, {do: clearLimit, key: "k1"}}
		if sim.script.total > 0 {
			limits = append(limits, step{do: setLimit, all: true})
		}
		for _, x := range limits {
			x.n = sim.script.limit
			if x.all {
				x.n = sim.script.total
			}
			if err := p.do(x); err != nil {
				sim.wrong("probe", "%s: %s of %s: %v", p.name, x.do, x.gate(), err)
			}
		}
		for _, x := range permitted(acquire) {
			x.n, x.ctx = sim.script.limit, time.Minute
			if err := p.do(x); err != nil {
				sim.wrong("probe", "%s gets no permit of %s: %v", p.name, x.gate(), err)
			}
		}
	}
	sim.mu.Lock()
	late := time.Until(sim.underWay)
	sim.mu.Unlock()
	time.Sleep(max(0, late) + time.Minute) // for what is cleaned up in the background
	sim.mark(ctx, history.MarkIdle)
	for _, key := range sim.server.Keys(prefix) {
		if strings.Contains(key, "/queue/") || strings.Contains(key, "/request-id/") {
			sim.wrong("left", "%s exists after all permits were released", key)
		}
	}
	for _, p := range sim.all {
		p.close(ctx, time.Minute)
	}
	if left := sim.server.Leases(); len(left) > 0 {
		sim.wrong("left", "leases %x live after all sessions were closed", left)
	}
	for _, key := range sim.server.Keys(prefix) {
		if !strings.HasSuffix(key, "/limit") && key != root+limiter+"/default" && !strings.HasPrefix(key, root+"register/") {
			sim.wrong("left", "%s exists after all sessions were closed", key)
		}
	}
	sim.mark(ctx, history.MarkDrained)
}

func (sim *simulation) mark(ctx context.Context, phase string) {
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_ = sim.tap.Complete(bounded) // it says so itself if it is not
	sim.recorder.Mark(phase)
}

// step begins one step of the script.
func (sim *simulation) step(p *process, x step) {
	switch x.do {
	case meet:
		p.mu.Lock()
		p.fates = append(p.fates, x)
		p.mu.Unlock()
	case stall:
		p.client.Stall()
		sim.later(x.d, p.client.Heal)
	case cut:
		p.client.Cut()
		sim.later(x.d, p.client.Heal)
	case snap:
		p.client.Break()
	case leader:
		sim.server.SetLeader(false)
		sim.later(x.d, func() { sim.server.SetLeader(true) })
	case compact:
		sim.server.Compact()
	case late:
		sim.server.ShiftClock(-x.d)
	case expire:
		if s := p.session(); s != nil && s.Lease() != 0 {
			id := s.Lease()
			done := sim.recorder.Begin(history.Event{Name: "lease ended", Lease: int64(id)})
			sim.server.Expire(id)
			done()
		}
	case plant:
		// It has no lease and looks like a request of the first one's.
		keys := sim.space.Queue(keyspace.Semaphore, queue)
		switch l := sim.space.Limiter(limiterName); {
		case x.all:
			keys = l.Total()
		case x.key != "":
			keys = l.Key(x.key)
		}
		sim.tamper(keys.Slot(keyspace.Slot{Lease: lease(sim.all[0].session()), Number: 40, Weight: 1}), clientv3.OpPut, "key planted")
	case again:
		if keys := sim.server.Keys(root + x.gate() + "/queue/"); len(keys) > 0 {
			sim.tamper(keys[0], func(key, _ string, _ ...clientv3.OpOption) clientv3.Op {
				return clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
			}, "key overwritten")
		}
	case reopen:
		sim.calls.Go(func() {
			p.close(context.Background(), x.d)
			p.open(context.Background())
		})
	default:
		sim.calls.Go(func() { _ = p.do(x) })
	}
}

// tamper puts a key by hand, which is declared, since it is excepted.
func (sim *simulation) tamper(key string, put func(string, string, ...clientv3.OpOption) clientv3.Op, name string) {
	done := sim.recorder.Begin(history.Event{Name: name, Attr: map[string]string{"key": key}})
	defer done()
	_, _ = sim.intruder.Do(context.Background(), put(key, "by hand"))
}

func (sim *simulation) later(d time.Duration, undo func()) {
	sim.faults.Go(func() {
		time.Sleep(d)
		undo()
	})
}

// fate is what a message of this process meets.
func (p *process) fate(m etcdfake.Message) etcdfake.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.fates {
		x := &p.fates[i]
		// What is lost of a watch are events: a request that is lost is held up
		// until clientv3 asks anew, which it does not.
		if x.n == 0 || m.Method == "Watch" && !m.Response {
			continue
		}
		if of := x.method == ofDefault && brings(m, limiter+"/default"); !of && x.method != "" && x.method != m.Method {
			continue
		}
		x.n--
		p.sim.mu.Lock()
		if until := time.Now().Add(2 * x.d); until.After(p.sim.underWay) { // there and back
			p.sim.underWay = until
		}
		p.sim.mu.Unlock()
		f := fateOf(x.fate, x.d, m)
		// A semaphore's promise excepts the loss of this event: see docs/guarantees.md. That of a key
		// does not, since a read confirms its admissions.
		if m.Method == "Watch" && (brings(m, gate+"/limit") || brings(m, limiter+"/total/limit")) {
			f.DropResponse = false
		}
		return f
	}
	return etcdfake.Fault{}
}

// brings reports whether a message is that of a watch which brings a change of a key.
func brings(m etcdfake.Message, key string) bool {
	r, ok := m.Body.(*etcdserverpb.WatchResponse)
	return ok && slices.ContainsFunc(r.Events, func(e *mvccpb.Event) bool { return string(e.Kv.Key) == root+key })
}

func (p *process) session() *concurrency.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sess
}

// lease returns the lease of a session.
func lease(s *concurrency.Session) int64 {
	if s == nil {
		return 4711
	}
	return int64(s.Lease())
}
