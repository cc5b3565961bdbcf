package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
	"github.com/etcdkit/etcdkit/bench/servers"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// newEnv starts the servers of a test.
func newEnv(t *testing.T) *Env {
	t.Helper()
	etcd, err := servers.StartEtcd(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	redis, err := servers.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	return &Env{Etcd: etcd, Redis: redis, For: 50 * time.Millisecond}
}

// Each contender keeps to the limit, its operations are counted, and only those that use etcd have
// figures of it.
func TestLocks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, l := range []Lock{
		Mutex(), EtcdMutex(), Ideal(), modes()[0], modes()[1],
		Redislock(servers.Always), Redislock(servers.Everysec), Redsync(servers.Always), Redsync(servers.Everysec),
	} {
		t.Run(l.Name, func(t *testing.T) {
			if testing.Short() && strings.HasPrefix(l.Name, "red") {
				t.Skip("a lock on Redis, whose client gives up after seconds: on a busy machine it may")
			}
			s, err := e.crowd(t.Context(), l, Crowd{Processes: 3, Limit: 1})
			if missing, ok := errors.AsType[measure.Unavailable](err); ok {
				t.Skipf("there is no Redis to measure: %v", missing)
			}
			if err != nil {
				t.Fatal(err)
			}
			if s[measure.Rate] <= 0 || s[measure.WaitMedian] <= 0 || s[measure.PassMedian] <= 0 {
				t.Errorf("%v", s)
			}
			if _, ofEtcd := s[measure.Reads]; ofEtcd != (l.queue != nil) {
				t.Errorf("figures of etcd: %v", s)
			}
			exclusive(t, e, l)
		})
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		held  time.Duration
		limit int
		want  float64
	}{{50, 10 * time.Millisecond, 1, 0.5}, {50, 10 * time.Millisecond, 2, 0.25}, {11, 100 * time.Millisecond, 1, 1}} {
		if got := capacity(c.rate, c.held, c.limit); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// exclusive fails if two processes have the only permit.
func exclusive(t *testing.T, e *Env, l Lock) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	locks, end, err := e.open(ctx, l, name(), 3, 1)
	defer end()
	if err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int32
	var wg sync.WaitGroup
	for _, acquire := range locks {
		wg.Go(func() {
			for range 3 {
				release, err := acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d processes have the permit", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestInTurn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	samples, err := e.InTurn([]string{"a", "b"}, []Lock{Ours("ours", nil), Bare()}).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := e.Repeated("kept", Ours("kept", &concurrency.SemaphoreOptions{Keep: time.Minute})).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if each := kept[0][measure.EachTime]; each <= 0 || each > samples[1][measure.EachTime] {
		t.Errorf("a kept permit takes %v µs, two writes %v µs", each, samples[1][measure.EachTime])
	}
	for i, s := range samples {
		if s[measure.EachTime] <= 0 {
			t.Errorf("sample %d: %v", i, s)
		}
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, c := range []measure.Cell{
		e.Requests("ours", 8), e.BareRequests("bare", 8), e.FloorRequests("floor", 100), e.FloorRequests("floor, alone", 1), e.RedisRequests("Redis", servers.Always, 8), e.Replay("replay"),
	} {
		t.Run(c.IDs[0], func(t *testing.T) {
			samples, err := c.Run(t.Context())
			if missing, ok := errors.AsType[measure.Unavailable](err); ok {
				t.Skipf("there is no Redis to measure: %v", missing)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := samples[0]
			if s[measure.Rate] <= 0 && s[measure.EachTime] <= 0 {
				t.Errorf("%v", s)
			}
			client, server, both := s[measure.ClientCPU], s[measure.ServerCPU], s[measure.BothCPU]
			if _, known := processorTime(); known && s[measure.Rate] > 0 && (client <= 0 || server <= 0 || both != client+server) {
				t.Errorf("processor time: client %v, server %v, both %v", client, server, both)
			}
		})
	}
}

// The floor writes what a request needs: the outcome replaces the claim of the same key, and a key that exists is not
// claimed.
func TestFloor(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	client, err := e.Etcd.Process(0)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	f, prefix := newFloor(client), "/"+name()+"/"
	const requests = 3 * floorParts
	request := func(i int) error {
		return f.request(fmt.Sprintf("%s%03d", prefix, i), clientv3.WithLease(lease.ID))
	}
	errs := make(chan error, requests)
	for i := range requests {
		go func() { errs <- request(i) }()
	}
	for len(f.waiting) < requests { // they wait before any is sent, so that they share Txns
		time.Sleep(time.Millisecond)
	}
	defer close(f.stopped)
	for range floorSenders {
		go f.serve(t.Context())
	}
	for range requests {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := request(0); !errors.Is(err, errCondition) {
		t.Errorf("a key that exists is claimed: %v", err)
	}
	var both []*floorPart
	for _, key := range []string{prefix + "000", "/other"} {
		p := &floorPart{done: make(chan error, 1)}
		p.ifs[0], p.then[0] = clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpPut(key, working)
		both = append(both, p)
	}
	f.send(t.Context(), both, nil)
	if err := <-both[0].done; !errors.Is(err, errCondition) {
		t.Errorf("a key that exists is claimed beside another one: %v", err)
	}
	if err := <-both[1].done; err != nil || both[1].rev == 0 {
		t.Errorf("a key is not claimed beside one that exists: %v, revision %d", err, both[1].rev)
	}
	r, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		if string(kv.Value) != outcome || kv.Version != 2 || kv.Lease != int64(lease.ID) {
			t.Errorf("%s, version %d, lease %x: %.20s", kv.Key, kv.Version, kv.Lease, kv.Value)
		}
	}
	if len(r.Kvs) != requests || r.Header.Revision > requests {
		t.Errorf("%d requests have %d keys at revision %d", requests, len(r.Kvs), r.Header.Revision)
	}
}

// The floor and the bare Txns write about as many bytes for a request as ours.
func TestBytesOfRequests(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	client, err := e.Etcd.Process(0)
	if err != nil {
		t.Fatal(err)
	}
	stored := func() (key, value int) {
		r, err := client.Get(t.Context(), "/etcdkit/v1/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			if strings.Contains(string(kv.Key), "/record/") {
				key, value = len(kv.Key), len(kv.Value)
			}
		}
		return key, value
	}
	st, closing, err := e.store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closing()
	id, begun := name()+"-00000001", 0
	if _, err := idempotency.Do(t.Context(), st, idempotency.Key{Op: "POST /payments", ID: id}, "payload", func(context.Context, *idempotency.Attempt) (string, error) {
		_, begun = stored()
		return result, nil
	}); err != nil {
		t.Fatal(err)
	}
	key, done := stored()
	for what, bytes := range map[string][2]int{"key": {key, len(requestRoot() + id)}, "claim": {begun, len(working)}, "outcome": {done, len(outcome)}} {
		t.Logf("%s: ours has %d bytes, a bare one %d", what, bytes[0], bytes[1])
		if ours, bare := bytes[0], bytes[1]; bare < ours*95/100 || bare > ours*105/100 {
			t.Errorf("%s: ours has %d bytes, a bare one %d", what, ours, bare)
		}
	}
}

// The event of a deletion is not earlier than its call.
func TestDeletion(t *testing.T) {
	t.Parallel()
	samples, err := newEnv(t).Deletion("delete + event").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := samples[0]; s[measure.PassMedian] <= 0 || s[measure.Pass99] < s[measure.PassMedian] {
		t.Errorf("%v", s)
	}
}

// Attempts that end again have used memory, and no record of them is left.
func TestAttempts(t *testing.T) {
	e := newEnv(t) // not in parallel: the memory of other tests would count
	samples, err := e.Attempts("ours", 600).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if heap := samples[0][measure.Heap]; heap < 200 || heap > 50_000 {
		t.Errorf("an attempt has %v bytes", heap)
	}
	client, err := e.Etcd.Process(0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Get(t.Context(), "/etcdkit/v1/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range r.Kvs {
		if strings.Contains(string(kv.Key), "/record/") {
			t.Errorf("%s is left", kv.Key)
		}
	}
}

// Calls with MaxWaiters are repeated until they have a permit.
func TestBounded(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	s, err := e.crowd(t.Context(), Bounded("bounded", 1, time.Millisecond), Crowd{Processes: 2, Callers: 5, Limit: 1, Hold: time.Millisecond})
	if err != nil || s[measure.Rate] <= 0 {
		t.Errorf("%v %v", s, err)
	}
	exclusive(t, e, Bounded("bounded", 1, time.Millisecond))
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.For = time.Second // the workers of a busy machine may need five
	for _, l := range mutexes {
		t.Run(l.Name, func(t *testing.T) {
			s, err := e.workers(t.Context(), t.TempDir(), l, Crowd{Processes: 3, Limit: 1})
			if err != nil || s[measure.Rate] <= 0 {
				t.Errorf("%v %v", s, err)
			}
		})
	}
	unknown := Lock{Name: "unknown", queue: func(string) string { return "/nobody" }}
	if _, err := e.workers(t.Context(), t.TempDir(), unknown, Crowd{Processes: 3, Limit: 1}); err == nil || !strings.Contains(err.Error(), `there is no lock "unknown"`) {
		t.Errorf("workers that end with an error: %v", err)
	}
}

func TestScenes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, sc := range map[string]Scene{
		"permanent holders": {Crowd: Crowd{Processes: 4, Limit: 3, Hold: time.Millisecond}, Permanent: 2},
		"bursts and far":    {Crowd: Crowd{Processes: 4, Limit: 2, Hold: time.Millisecond}, Bursts: true, RTT: 5 * time.Millisecond},
		"impatient":         {Crowd: Crowd{Processes: 6, Limit: 1, Hold: 5 * time.Millisecond}, Impatient: 20 * time.Millisecond},
		"a limit raised":    {Crowd: Crowd{Processes: 6, Limit: 1, Hold: time.Minute}, during: more(3)},
		"a session ends":    {Crowd: Crowd{Processes: 4, Limit: 3, Hold: time.Millisecond}, Permanent: 2, during: kill},
	} {
		t.Run(name, func(t *testing.T) {
			samples, err := e.Scene(name, sc).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if s := samples[0]; s[measure.IdleLongest] <= 0 || s[measure.WorstPut] <= 0 {
				t.Errorf("%v", s)
			}
		})
	}
}

// A failed operation fails the cell, instead of counting.
func TestFailedOperation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	broken := errors.New("broken")
	ops := []op{func(context.Context, *caller) error { return broken }}
	if _, err := e.drive(t.Context(), ops, after(0)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// Every comparison is of cells that there are, and no two cells have one name.
func TestTablesAreWhole(t *testing.T) {
	t.Parallel()
	for _, g := range slices.Concat(Table(Setup{dry: true}), Scale(Setup{dry: true}), ForScaling(Setup{dry: true})) {
		cells, end, err := g.Cells(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{"": true}
		for _, c := range cells {
			for _, id := range c.IDs {
				if known[id] {
					t.Errorf("%s: two cells are called %s", g.Name, id)
				}
				known[id] = true
			}
		}
		for _, c := range g.Compare {
			if !known[c.Of] || !known[c.Against] {
				t.Errorf("%s: a comparison of %q with %q", g.Name, c.Of, c.Against)
			}
		}
		end()
	}
}
