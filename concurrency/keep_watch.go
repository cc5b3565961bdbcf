package concurrency

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/rank"
)

const (
	// proveEvery is how often etcd is asked whether requests wait: often enough for the next answer to
	// come while the last one is good.
	proveEvery = keepProof / 2
	// keepLinger is how long a keeper watches on after a permit was used last.
	keepLinger = time.Second
	// keepPause is how long a keeper keeps nothing after requests have waited. It is longer, up to
	// keepPauseMost, where requests often wait: to find that out costs the server a count each time.
	keepPause     = keepIdle
	keepPauseMost = 20 * keepPause
)

// startWatch has the keeper watch, since a permit is released to etcd that might have stayed.
func (k *keeper) startWatch(now time.Duration) {
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
// that have stayed for long enough, and all of them as soon as a request waits. It ends the keys that are
// gone from etcd.
func (k *keeper) watch() {
	defer k.watching.Store(false)
	defer k.stop()
	ctx := k.queue.sess.Accepting()
	first := k.prove(ctx) // where requests always wait, the queue is not followed
	if first.waits || first.err != nil {
		k.suspend(k.now())
		return
	}
	m := k.queue.View.Join()
	defer m.Leave()
	tick := time.NewTicker(keepLook)
	defer tick.Stop()
	answers := make(chan proof, 1)
	var seen <-chan struct{}
	for known, sent := first, first.sent; ; {
		waits, listed, changed := m.Asked()
		if seen != changed {
			k.endMissing(m)
			seen = changed
		}
		now := k.now()
		switch {
		case listed && waits || known.waits:
			k.suspend(now)
			return
		case listed:
			k.confirm(known.sent)
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
			for _, c := range p.gone {
				c.keyGone()
			}
			k.endMissing(m) // also those that the view does not show since before they were idle
			known, sent, k.pause = p, p.sent, keepPause
		case <-m.Replaced:
			m.Next()
		case <-ctx.Done():
			return
		}
	}
}

// confirm lets permits stay, since etcd has answered a question of that time.
func (k *keeper) confirm(sent time.Duration) {
	since := k.doubts.Load()
	if int64(sent) < since {
		return
	}
	k.quiet.Store(int64(sent + keepProof))
	if k.doubts.Load() != since { // meanwhile
		k.quiet.Store(0)
	}
}

// doubt has nothing stay until etcd has been asked again: what this process has changed counts for its next
// call.
func (k *keeper) doubt() {
	if k != nil {
		k.doubts.Store(int64(k.now()))
		k.stop()
	}
}

// suspend keeps nothing for a while, since requests wait.
func (k *keeper) suspend(now time.Duration) {
	k.notBefore.Store(int64(now + k.pause))
	k.pause = min(2*k.pause, keepPauseMost)
}

// stop releases what is idle, and lets nothing stay any more.
func (k *keeper) stop() {
	k.quiet.Store(0) // first: a permit that becomes idle now is released by its holder
	for _, c := range *k.keys.Load() {
		c.drop(nil)
	}
}

// releaseIdle releases the permits that may not stay until then, and returns when one was used last.
func (k *keeper) releaseIdle(then time.Duration) (used time.Duration) {
	used = time.Duration(k.used.Load())
	quiet := k.isQuiet(then)
	for _, c := range *k.keys.Load() {
		since := time.Duration(c.idle.Load())
		used = max(used, since)
		// Whether the lease is trusted its holder finds out, and its epoch.
		if i := (idleness{quiet: quiet, trusted: true, age: then - c.granted, idle: then - since}); !i.stays(k.keep) {
			c.drop(nil)
		}
	}
	return used
}

// endMissing ends the keys that the view does not show any more.
func (k *keeper) endMissing(m *mirror.Use) {
	for _, c := range *k.keys.Load() {
		if gone, _ := m.Gone(c.ticket.Key, c.ticket.Token); gone {
			c.keyGone()
		}
	}
}

// proof is etcd's answer to whether requests wait, and whether the keys that have been idle are there.
type proof struct {
	sent  time.Duration // when it was asked, by the keeper's clock: the answer is no older
	waits bool
	gone  []*keptKey
	err   error
}

// provable is how many keys are looked for beside the counts. If there are more, the queue is listed.
const provable = 32

// prove asks etcd. Counts show the answer where all requests have weight 1.
func (k *keeper) prove(ctx context.Context) proof {
	q, keys := k.queue, *k.keys.Load()
	p := proof{sent: k.now()}
	var looks []clientv3.Op
	if len(keys) <= provable {
		for _, c := range keys {
			looks = append(looks, clientv3.OpGet(c.ticket.Key, clientv3.WithKeysOnly()))
		}
	}
	t, found, _, err := q.CountAnd(ctx, looks)
	if err != nil {
		return proof{sent: p.sent, err: err}
	}
	for i := range found {
		if kvs := found[i].GetResponseRange().Kvs; len(kvs) == 0 || kvs[0].CreateRevision != keys[i].ticket.Token {
			p.gone = append(p.gone, keys[i])
		}
	}
	if t.Others == 0 && len(keys) <= provable {
		l, stored, err := q.Limit.Learn(t.Records)
		p.waits, p.err = !stored || !rank.Fits(0, t.Light, l.N), err
		return p
	}
	v, err := q.Read(ctx)
	p.waits, p.err = v.Queue.Asked(), err
	if err == nil && len(keys) > provable {
		p.gone = slices.DeleteFunc(slices.Clone(keys), func(c *keptKey) bool {
			_, _, there := v.Queue.Position(c.ticket.Key, c.ticket.Token)
			return there
		})
	}
	return p
}
