package virtual

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/fakeetcd"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

const (
	prefix = "/virtual"
	queue  = "q"
	gate   = "sem/" + queue
	root   = prefix + "/v1/test/"
)

// world is an etcd with some processes, and a record of what they do.
type world struct {
	script   script
	server   *fakeetcd.Server
	recorder *history.Recorder
	tap      *history.Tap
	meddler  *fakeetcd.Client // on whom nothing strikes
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
	w      *world
	rec    *history.Client
	name   string
	client *fakeetcd.Client

	// turn is for one opening or closing at a time. It is no mutex: for who waits for
	// one, a bubble's time does not pass.
	turn chan struct{}

	mu   sync.Mutex
	sess *concurrency.Session

	fates []step // what the next messages meet; guarded by mu
}

// play runs a script to its end, and returns what was recorded. It must be called in a
// bubble.
func play(s script) *history.History {
	w := &world{script: s, server: fakeetcd.New(nil), recorder: history.NewRecorderOn(history.Virtual)}
	defer w.server.Close()
	w.recorder.Set(check.SettingSuite, "concurrency")
	w.recorder.Set(check.SettingTTL, s.ttl.String())
	w.recorder.Set(check.SettingTold, (commit.CallTimeout + time.Second).String()) // a call whose answer is lost is repeated then
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.meddler = w.dial()
	defer w.meddler.Close()
	var err error
	if w.space, err = keyspace.New(prefix, "test"); err != nil {
		panic(err)
	}
	if w.tap, err = history.StartTap(ctx, w.recorder, root, w.meddler.Client); err != nil {
		panic(err)
	}
	for i := range s.processes {
		p := &process{w: w, turn: make(chan struct{}, 1), name: fmt.Sprintf("p%d", i), client: w.dial()}
		p.rec = w.recorder.Client(p.name)
		p.client.Inject(p.fate)
		w.all = append(w.all, p)
		p.open(ctx)
	}
	for _, x := range s.steps {
		time.Sleep(x.pause)
		w.step(w.all[x.who], x)
	}
	w.checkQuiescence(ctx)
	for _, p := range w.all {
		_ = p.client.Close()
	}
	w.tap.Close()
	h, _ := w.recorder.History()
	return h
}

func (w *world) dial() *fakeetcd.Client {
	c, err := w.server.NewClient()
	if err != nil {
		panic(err)
	}
	return c
}

func (w *world) wrong(rule, format string, args ...any) {
	w.recorder.Finding(rule, false, fmt.Sprintf(format, args...))
}

// checkQuiescence ends all faults, and checks that everything works again and nothing is left.
func (w *world) checkQuiescence(ctx context.Context) {
	w.faults.Wait() // each ends what it began
	for _, p := range w.all {
		p.mu.Lock()
		p.fates = nil
		p.mu.Unlock()
	}
	for _, key := range w.server.Keys(root + gate + "/queue/") {
		_, _ = w.meddler.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(key), "=", 0)).Then(clientv3.OpDelete(key)).Commit()
	}
	// Who waits for an event that was lost finds out by the next list.
	time.Sleep(3 * w.script.ttl)
	w.mark(ctx, history.MarkHealthy)
	w.calls.Wait() // every ctx ends

	for _, p := range w.all {
		p.open(ctx)
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		if err := p.call(bounded, history.Event{Name: history.SetLimit, Limit: int64(w.script.limit)}, func(sem *concurrency.Semaphore) error {
			return sem.SetLimit(bounded, w.script.limit, concurrency.CreateLimit())
		}); err != nil {
			w.wrong("probe", "%s cannot set the limit: %v", p.name, err)
		}
		x := step{do: acquire, n: w.script.limit, ctx: time.Minute}
		if err := p.ask(ctx, x); err != nil {
			w.wrong("probe", "%s gets no permit: %v", p.name, err)
		}
		cancel()
	}
	w.mu.Lock()
	late := time.Until(w.underWay)
	w.mu.Unlock()
	time.Sleep(max(0, late) + time.Minute) // for what is cleaned up in the background
	w.mark(ctx, history.MarkIdle)
	for _, key := range w.server.Keys(prefix) {
		if strings.Contains(key, "/"+gate+"/queue/") || strings.Contains(key, "/id/") {
			w.wrong("left", "%s stands after all permits were given back", key)
		}
	}
	for _, p := range w.all {
		p.close(ctx, time.Minute)
	}
	if left := w.server.Leases(); len(left) > 0 {
		w.wrong("left", "leases %x live after all sessions were closed", left)
	}
	for _, key := range w.server.Keys(prefix) {
		if !strings.HasSuffix(key, "/limit") && !strings.HasPrefix(key, root+"register/") {
			w.wrong("left", "%s stands after all sessions were closed", key)
		}
	}
	w.mark(ctx, history.MarkDrained)
}

func (w *world) mark(ctx context.Context, phase string) {
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_ = w.tap.Complete(bounded) // it says so itself if it is not
	w.recorder.Mark(phase)
}

// step begins one step of the script.
func (w *world) step(p *process, x step) {
	switch x.do {
	case meet:
		p.mu.Lock()
		p.fates = append(p.fates, x)
		p.mu.Unlock()
	case stall:
		p.client.Stall()
		w.later(x.d, p.client.Resume)
	case cut:
		p.client.Cut()
		w.later(x.d, p.client.Mend)
	case snap:
		p.client.Break()
	case leader:
		w.server.SetLeader(false)
		w.later(x.d, func() { w.server.SetLeader(true) })
	case compact:
		w.server.Compact()
	case late:
		w.server.Jump(-x.d)
	case expire:
		if s := p.session(); s != nil && s.Lease() != 0 {
			id := s.Lease()
			done := w.recorder.Begin(history.Event{Name: "lease ended", Lease: int64(id)})
			w.server.Expire(id)
			done()
		}
	case plant:
		// It hangs on no lease and looks like a request of the first one's.
		w.meddle(w.space.Gate(keyspace.Semaphore, queue).Slot(keyspace.Slot{Lease: lease(w.all[0].session()), Number: 40, Weight: 1}), clientv3.OpPut, "key planted")
	case again:
		if keys := w.server.Keys(root + gate + "/queue/"); len(keys) > 0 {
			w.meddle(keys[0], func(key, _ string, _ ...clientv3.OpOption) clientv3.Op {
				return clientv3.OpPut(key, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())
			}, "key overwritten")
		}
	case reopen:
		w.calls.Go(func() {
			p.close(context.Background(), x.d)
			p.open(context.Background())
		})
	default:
		w.calls.Go(func() { _ = p.do(x) })
	}
}

// meddle puts a key by hand, which is declared, since it is excepted.
func (w *world) meddle(key string, put func(string, string, ...clientv3.OpOption) clientv3.Op, name string) {
	done := w.recorder.Begin(history.Event{Name: name, Attr: map[string]string{"key": key}})
	defer done()
	_, _ = w.meddler.Do(context.Background(), put(key, "by hand"))
}

func (w *world) later(d time.Duration, undo func()) {
	w.faults.Go(func() {
		time.Sleep(d)
		undo()
	})
}

// fate is what a message of this process meets.
func (p *process) fate(m fakeetcd.Message) fakeetcd.Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.fates {
		x := &p.fates[i]
		// What is lost of a watch are events: a request that is lost is held up
		// until clientv3 asks anew, which it does not.
		if x.n == 0 || x.method != "" && x.method != m.Method || m.Method == "Watch" && !m.Answer {
			continue
		}
		x.n--
		p.w.mu.Lock()
		if until := time.Now().Add(2 * x.d); until.After(p.w.underWay) { // there and back
			p.w.underWay = until
		}
		p.w.mu.Unlock()
		return fateOf(x.fate, x.d, m)
	}
	return fakeetcd.Fate{}
}

func (p *process) session() *concurrency.Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sess
}

// lease is where a session stands.
func lease(s *concurrency.Session) int64 {
	if s == nil {
		return 4711
	}
	return int64(s.Lease())
}
