package conformance

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func rawKey(w *world) {
	a := w.open()
	k := w.held()
	r := k.request()
	r.ID = "Raw7key"
	first := a.start(w.ctx, r)
	if child := k.begins(first).ChildKey("purpose"); strings.Contains(child, "Raw7key") {
		w.failf("the client's key is part of the child key %q", child)
	}
	look := func(when string) {
		for key := range w.keys("") {
			if strings.Contains(key, "Raw7key") {
				w.failf("%s the client's key is part of etcd's key %q", when, key)
			}
		}
	}
	look("in progress")
	k.goOn()
	w.answer(w.returned(first))
	look("done")
}

// largeValue is what etcd does not take in one request.
const largeValue = 10 << 20

func largeResult(w *world) {
	a, b := w.open(), w.open()
	k := w.work()
	large := strings.Repeat("0123456789abcdef", largeValue/16)
	r := k.request()
	r.Func = func(ctx context.Context, at Attempt) (string, error) {
		_, err := k.run(ctx, at)
		return large, err
	}
	if got := w.answer(a.do(r)); got.Replayed || got.Value != large {
		w.failf("the first caller gets %d bytes that are not its result of %d", len(got.Value), len(large))
	}
	for _, m := range []*member{b, a} {
		switch o := m.do(r); {
		case o.err != nil:
			w.told(o, Omitted)
		case !o.Replayed || o.Value != large:
			w.failf("a duplicate gets %d bytes that are not the result of %d (replayed: %v)", len(o.Value), len(large), o.Replayed)
		}
	}
	k.ran(1)
}

// put is an operation on a key of the caller's own.
func (w *world) put(name, value string) clientv3.Op {
	return clientv3.OpPut(w.prefix+"own/"+name, value)
}

// version tells how often such a key was put.
func (w *world) version(name string) int64 {
	ctx, cancel := w.soon()
	defer cancel()
	resp, err := w.etcd.Get(ctx, w.prefix+"own/"+name)
	if err != nil {
		w.failf("etcd cannot be read: %w", err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].Version
}

// puts checks how often such a key was put.
func (w *world) puts(name string, n int64, when string) {
	if v := w.version(name); v != n {
		w.failf("%s the caller's own key was put %d times, where %d was right", when, v, n)
	}
}

func ownKeys(w *world) {
	a, b := w.open(), w.open()
	k := w.held()
	first := a.start(w.ctx, k.request())
	k.begins(first).Attach(nil, w.put("done", "1"))
	w.puts("done", 0, "before the outcome")
	k.goOn()
	done := w.answer(w.returned(first))
	w.puts("done", 1, "with the outcome")
	b.replays(k.request(), done)
	w.puts("done", 1, "after a replay")

	broken, fails := errors.New("broken"), w.work()
	fails.then = func(_ context.Context, at Attempt) error {
		at.Attach(nil, w.put("failed", "1"))
		return broken
	}
	r := fails.request()
	r.ID = "fails"
	if o := a.do(r); !errors.Is(o.err, broken) {
		w.failf("the function's error is %q, %v", o.Value, o.err)
	}
	w.puts("failed", 0, "after an error")

	unmet := w.work()
	unmet.then = func(_ context.Context, at Attempt) error {
		at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(w.prefix+"own/none"), "!=", 0)}, w.put("unmet", "1"))
		return nil
	}
	r = unmet.request()
	r.ID = "unmet"
	w.told(a.do(r), Conflict)
	w.puts("unmet", 0, "although a condition does not hold")
	next := w.work()
	r.Func = next.run
	if w.answer(b.do(r)).Replayed {
		w.failf("a value whose conditions did not hold is replayed")
	}
	next.ran(1)
}

func steps(w *world) {
	a, b, c := w.open(), w.open(), w.open()
	one, two := w.work(), w.work()
	broken := errors.New("broken")
	step := func(at Attempt, name string, k *work) (string, error) {
		return at.Step(name, func(ctx context.Context) (string, error) { return k.run(ctx, at) })
	}
	var values []string // of the first step; the function runs one after the other
	work := func(afterOne, afterTwo func(ctx context.Context) error) Request {
		r := w.work().request()
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
	if o := w.returned(b.start(w.ctx, work(func(context.Context) error { return broken }, well))); !errors.Is(o.err, broken) {
		w.failf("the function's error is %q, %v", o.Value, o.err)
	}
	reached := make(chan struct{}, 1)
	crashing := a.start(w.ctx, work(well, func(ctx context.Context) error {
		reached <- struct{}{}
		select {
		case <-ctx.Done():
		case <-w.over:
		}
		return broken
	}))
	received(w, reached, "the second step is not reached")
	a.crash()
	w.returned(crashing)
	w.answer(c.do(work(well, well)))
	one.ran(1)
	two.ran(1)
	for _, v := range values {
		if v != "run 1" {
			w.failf("a recovery point has the value %.40q, where %q was recorded", v, "run 1")
		}
	}
}
