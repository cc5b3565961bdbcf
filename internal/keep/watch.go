package keep

import (
	"context"
	"time"

	"github.com/etcdkit/etcdkit/internal/mirror"
	"github.com/etcdkit/etcdkit/internal/queue"
)

const (
	// lookEvery is the time between two looks at idle permits.
	lookEvery = mostIdle / 4
	// proveEvery is how often etcd is asked whether requests wait: often enough for the next answer to
	// come while the last one is good.
	proveEvery = proofCounts / 2
	// lingers is how long a keeper watches on after a permit was used last.
	lingers = time.Second
	// leastPause is how long a keeper keeps nothing after requests have waited. It is longer, up to
	// mostPause, where requests often wait: to find that out costs the server a count each time.
	leastPause = mostIdle
	mostPause  = 20 * leastPause
)

// startWatch has the keeper watch, since a permit is released to etcd that might have stayed.
func (k *Keeper) startWatch(now time.Duration) {
	if k.Keep == 0 {
		return
	}
	k.used.Store(int64(now))
	if now < time.Duration(k.notBefore.Load()) || !k.watching.CompareAndSwap(false, true) {
		return
	}
	if !k.Session.Background(k.watch) {
		k.watching.Store(false)
	}
}

// watch follows the queue while permits are used. It alone lets permits stay, and it releases those
// that have stayed for long enough, and all of them as soon as a request waits. It ends the keys that are
// gone from etcd.
func (k *Keeper) watch() {
	defer k.watching.Store(false)
	defer k.stop()
	ctx := k.Session.Accepting()
	first := k.prove(ctx) // where requests always wait, the queue is not followed
	if first.waits || first.err != nil {
		k.suspend(k.now())
		return
	}
	m := k.Queue.View.Join()
	defer m.Leave()
	tick := time.NewTicker(lookEvery)
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
		if used := k.releaseIdle(now + lookEvery); now-used > lingers {
			return
		}
		if sent == known.sent && now-sent >= proveEvery {
			sent = now
			k.Session.Background(func() { answers <- k.prove(ctx) })
		}
		select {
		case <-changed:
		case <-tick.C:
		case p := <-answers:
			if p.err != nil { // there is no other until the last one is no good any more
				return
			}
			for _, c := range p.gone {
				c.gone()
			}
			k.endMissing(m) // also those that the view does not show since before they were idle
			known, sent, k.pause = p, p.sent, leastPause
		case <-m.Replaced:
			m.Next()
		case <-ctx.Done():
			return
		}
	}
}

// confirm lets permits stay, since etcd has answered a question of that time.
func (k *Keeper) confirm(sent time.Duration) {
	since := k.doubts.Load()
	if int64(sent) < since {
		return
	}
	k.quiet.Store(int64(sent + proofCounts))
	if k.doubts.Load() != since { // meanwhile
		k.quiet.Store(0)
	}
}

// Doubt has nothing stay until etcd has been asked again: what this process has changed counts for its next
// call.
func (k *Keeper) Doubt() {
	if k != nil {
		k.doubts.Store(int64(k.now()))
		k.stop()
	}
}

// suspend keeps nothing for a while, since requests wait.
func (k *Keeper) suspend(now time.Duration) {
	k.notBefore.Store(int64(now + k.pause))
	k.pause = min(2*k.pause, mostPause)
}

// stop releases what is idle, and lets nothing stay any more.
func (k *Keeper) stop() {
	k.quiet.Store(0) // first: a permit that becomes idle now is released by its holder
	for _, c := range *k.keys.Load() {
		c.drop(nil)
	}
}

// releaseIdle releases the permits that may not stay until then, and returns when one was used last.
func (k *Keeper) releaseIdle(then time.Duration) (used time.Duration) {
	used = time.Duration(k.used.Load())
	quiet := k.isQuiet(then)
	for _, c := range *k.keys.Load() {
		since := time.Duration(c.idle.Load())
		used = max(used, since)
		// Whether the lease is trusted its holder finds out, and its epoch.
		if i := (idleness{quiet: quiet, trusted: true, age: then - c.granted, idle: then - since}); !i.stays(k.Keep) {
			c.drop(nil)
		}
	}
	return used
}

// endMissing ends the keys that the view does not show any more.
func (k *Keeper) endMissing(m *mirror.Use) {
	for _, c := range *k.keys.Load() {
		if gone, _ := m.Gone(c.ticket.Key, c.ticket.Token); gone {
			c.gone()
		}
	}
}

// proof is etcd's answer to whether requests wait, and whether the keys that have been idle are there.
type proof struct {
	sent  time.Duration // when it was asked, by the keeper's clock: the answer is no older
	waits bool
	gone  []*Key
	err   error
}

// prove asks etcd.
func (k *Keeper) prove(ctx context.Context) proof {
	keys, p := *k.keys.Load(), proof{sent: k.now()}
	own := make([]*queue.Ticket, len(keys))
	for i, c := range keys {
		own[i] = c.ticket
	}
	var gone []int
	p.waits, gone, p.err = k.Queue.Prove(ctx, own)
	for _, i := range gone {
		p.gone = append(p.gone, keys[i])
	}
	return p
}
