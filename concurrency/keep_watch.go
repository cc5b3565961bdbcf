package concurrency

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/queue"
)

const (
	// proveEvery is how often etcd is asked whether requests wait: often enough for the next answer to
	// come while the last one is good.
	proveEvery = keepProof / 2
	// keepLinger is how long a keeper watches on after a permit was used last.
	keepLinger = time.Second
	// keepPause is how long a keeper keeps nothing after requests have waited. It is longer, up to
	// keepPauses, where requests often wait: to find that out costs the server a count each time.
	keepPause  = keepIdle
	keepPauses = 20 * keepPause
)

// missed has the keeper watch, since a permit is released to etcd that might have stayed.
func (k *keeper) missed(now time.Duration) {
	if k.keep == 0 {
		return
	}
	k.used.Store(int64(now))
	if now < time.Duration(k.notBefore.Load()) || !k.watching.CompareAndSwap(false, true) {
		return
	}
	if !k.queue.sess.Background(k.watch) {
		k.watching.Store(false)
	}
}

// watch follows the queue while permits are used. It alone lets permits stay, and it releases those
// that have stayed for long enough, and all of them as soon as a request waits.
func (k *keeper) watch() {
	defer k.watching.Store(false)
	defer k.stop()
	ctx := k.queue.sess.Accepting()
	first := k.prove(ctx) // where requests always wait, the queue is not followed
	if first.waits || first.err != nil {
		k.suspend(k.now())
		return
	}
	m := k.queue.view.Join()
	defer m.Leave()
	tick := time.NewTicker(keepLook)
	defer tick.Stop()
	answers := make(chan proof, 1)
	for known, sent := first, first.sent; ; {
		waits, listed, changed := m.Asked()
		now := k.now()
		switch {
		case listed && waits || known.waits:
			k.suspend(now)
			return
		case listed:
			k.quiet.Store(int64(known.sent + keepProof))
		}
		if used := k.releaseIdle(now + keepLook); now-used > keepLinger {
			return
		}
		if sent == known.sent && now-sent >= proveEvery {
			sent = now
			k.queue.sess.Background(func() { answers <- k.prove(ctx) })
		}
		select {
		case <-changed:
		case <-tick.C:
		case p := <-answers:
			if p.err != nil { // there is no other until the last one is no good any more
				return
			}
			known, sent, k.pause = p, p.sent, keepPause
		case <-m.Replaced:
			m.Next()
		case <-ctx.Done():
			return
		}
	}
}

// suspend keeps nothing for a while, since requests wait.
func (k *keeper) suspend(now time.Duration) {
	k.notBefore.Store(int64(now + k.pause))
	k.pause = min(2*k.pause, keepPauses)
}

// stop releases what is idle, and lets nothing stay any more.
func (k *keeper) stop() {
	k.quiet.Store(0) // first: a permit that becomes idle now is released by its holder
	for _, c := range *k.cells.Load() {
		c.drop(nil)
	}
}

// releaseIdle releases the permits that may not stay until then, and returns when one was used last.
func (k *keeper) releaseIdle(then time.Duration) (used time.Duration) {
	used = time.Duration(k.used.Load())
	quiet := k.isQuiet(then)
	for _, c := range *k.cells.Load() {
		since := time.Duration(c.idle.Load())
		used = max(used, since)
		// Whether the lease is trusted its holder finds out, and its epoch.
		if i := (idleness{quiet: quiet, trusted: true, age: then - c.granted, idle: then - since}); !i.stays(k.keep) {
			c.drop(nil)
		}
	}
	return used
}

// proof is etcd's answer to whether requests wait.
type proof struct {
	sent  time.Duration // when it was asked, by the keeper's clock: the answer is no older
	waits bool
	err   error
}

// prove asks etcd. Counts show the answer where all requests have weight 1.
func (k *keeper) prove(ctx context.Context) proof {
	q := k.queue
	p := proof{sent: k.now()}
	t, _, err := q.count(ctx)
	if err != nil {
		return proof{p.sent, false, err}
	}
	if t.others == 0 {
		l, stored, err := q.limit.Learn(t.own, t.base)
		p.waits, p.err = !stored || !queue.Fits(0, t.light, l.N), err
		return p
	}
	v, err := q.read(ctx)
	p.waits, p.err = v.Queue.Asked(), err
	return p
}
