package conformance

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func rawKey(f *fixture) {
	a := f.open()
	k := f.blocked()
	r := k.request()
	r.ID = "Raw7key"
	first := a.start(f.ctx, r)
	if child := k.waitRunning(first).ChildKey("purpose"); strings.Contains(child, "Raw7key") {
		f.failf("the ID is part of the child key %q", child)
	}
	look := func(when string) {
		for key := range f.keys() {
			if strings.Contains(key, "Raw7key") {
				f.failf("%s the ID is part of the key %q in etcd", when, key)
			}
		}
	}
	look("in progress,")
	k.release()
	f.wantAnswer(f.returned(first))
	look("done,")
}

// largeValue is a size that etcd does not accept in one request.
const largeValue = 10 << 20

func largeResult(f *fixture) {
	a, b := f.open(), f.open()
	k := f.work()
	large := strings.Repeat("0123456789abcdef", largeValue/16)
	r := k.request()
	r.Func = func(ctx context.Context, at Attempt) (string, error) {
		_, err := k.run(ctx, at)
		return large, err
	}
	// A slow etcd may take longer to record so much than the call waits. Then the duplicates wait.
	if first := a.do(r); first.kind != NotRecorded {
		if got := f.wantAnswer(first); got.Replayed || got.Value != large {
			f.failf("the first call got %d bytes that are not its result of %d bytes", len(got.Value), len(large))
		}
	}
	for _, m := range []*member{b, a} {
		switch o := m.do(r); {
		case o.err != nil:
			f.wantKind(o, Omitted)
		case !o.Replayed || o.Value != large:
			f.failf("a duplicate got %d bytes that are not the result of %d bytes (replayed: %v)", len(o.Value), len(large), o.Replayed)
		}
	}
	k.wantRuns(1)
}

// put is an operation on a key of the caller's own.
func (f *fixture) put(name string) clientv3.Op {
	return clientv3.OpPut(f.prefix+"own/"+name, "1")
}

// putCount returns how often such a key was put.
func (f *fixture) putCount(name string) int64 {
	ctx, cancel := f.bounded()
	defer cancel()
	resp, err := f.etcd.Get(ctx, f.prefix+"own/"+name)
	if err != nil {
		f.failf("read a key: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].Version
}

// wantPuts fails unless such a key was put n times.
func (f *fixture) wantPuts(name string, n int64, when string) {
	if v := f.putCount(name); v != n {
		f.failf("%s, the caller's own key was put %d times, want %d", when, v, n)
	}
}

func ownKeys(f *fixture) {
	a, b := f.open(), f.open()
	k := f.blocked()
	first := a.start(f.ctx, k.request())
	k.waitRunning(first).Attach(nil, f.put("done"))
	f.wantPuts("done", 0, "before the outcome")
	k.release()
	done := f.wantAnswer(f.returned(first))
	f.wantPuts("done", 1, "with the outcome")
	b.wantReplay(k.request(), done)
	f.wantPuts("done", 1, "after a replay")

	broken, fails := errors.New("broken"), f.work()
	fails.then = func(_ context.Context, at Attempt) error {
		at.Attach(nil, f.put("failed"))
		return broken
	}
	r := fails.request()
	r.ID = "fails"
	if o := a.do(r); !errors.Is(o.err, broken) {
		f.failf("want the error of the function; got %q, %v", o.Value, o.err)
	}
	f.wantPuts("failed", 0, "after an error")

	unmet := f.work()
	unmet.then = func(_ context.Context, at Attempt) error {
		at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.prefix+"own/none"), "!=", 0)}, f.put("unmet"))
		return nil
	}
	r = unmet.request()
	r.ID = "unmet"
	f.wantKind(a.do(r), Conflict)
	f.wantPuts("unmet", 0, "although a condition is not met")
	next := f.work()
	r.Func = next.run
	if f.wantAnswer(b.do(r)).Replayed {
		f.failf("a value whose conditions are not met is replayed")
	}
	next.wantRuns(1)
}

func steps(f *fixture) {
	a, b, c := f.open(), f.open(), f.open()
	one, two := f.work(), f.work()
	broken := errors.New("broken")
	step := func(at Attempt, name string, k *work) (string, error) {
		return at.Step(name, func(ctx context.Context) (string, error) { return k.run(ctx, at) })
	}
	var values []string // of the first step; the function runs one after the other
	work := func(afterOne, afterTwo func(ctx context.Context) error) Request {
		r := f.work().request()
		r.Func = func(ctx context.Context, at Attempt) (string, error) {
			v, err := step(at, "one", one)
			if err == nil {
				values = append(values, v)
				err = afterOne(ctx)
			}
			if err == nil {
				_, err = step(at, "two", two)
			}
			if err == nil {
				err = afterTwo(ctx)
			}
			return "done", err
		}
		return r
	}
	well := func(context.Context) error { return nil }
	if o := f.returned(b.start(f.ctx, work(func(context.Context) error { return broken }, well))); !errors.Is(o.err, broken) {
		f.failf("want the error of the function; got %q, %v", o.Value, o.err)
	}
	reached := make(chan struct{}, 1)
	crashing := a.start(f.ctx, work(well, func(ctx context.Context) error {
		reached <- struct{}{}
		select {
		case <-ctx.Done():
		case <-f.over:
		}
		return broken
	}))
	received(f, reached, "the second step is not reached")
	a.crash()
	f.returned(crashing)
	f.wantAnswer(c.do(work(well, well)))
	one.wantRuns(1)
	two.wantRuns(1)
	for _, v := range values {
		if v != "run 1" {
			f.failf("a recovery point has the value %.40q, want the recorded %q", v, "run 1")
		}
	}
}
