package console

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
)

// Bounds of the watch.
const (
	probeEvery   = time.Second // how often etcd is asked whether all changes have come
	refreshEvery = time.Hour   // after which the namespace is listed again
	unseenFor    = time.Minute // without a viewer, after which the watch ends
)

// follower has the state of the namespace by one watch for all viewers, while a page is read.
type follower struct {
	sess    *engine.Session
	options fleet.Options
	unseen  time.Duration
	ended   func()                              // is called when the watch has ended
	sample  func(context.Context, *fleet.Fleet) // samples the state until its context ends

	mu     sync.Mutex
	fleet  *fleet.Fleet // or nil
	looked time.Time
}

// follow returns what follows the namespace, and begins to follow it if no page was read lately. It returns
// nil after the session was closed.
func (f *follower) follow() *fleet.Fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked = time.Now()
	if f.fleet != nil && f.sess.Context().Err() == nil {
		return f.fleet
	}
	client := f.sess.Etcd()
	of := fleet.New(client.KV, client.Watcher, f.sess.Space(), f.options)
	ctx, stop := context.WithCancel(f.sess.Context())
	if !f.sess.Background(func() { _ = of.Run(ctx) }) {
		stop()
		return nil
	}
	f.sess.Background(func() {
		defer stop()
		f.wait(ctx)
	})
	f.sess.Background(func() { f.sample(ctx, of) })
	f.fleet = of
	return of
}

// wait returns when no page was read for a while, or ctx has ended. Then nothing is kept of the namespace.
func (f *follower) wait(ctx context.Context) {
	for left := f.unseen; left > 0; left = f.left() {
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return
		}
	}
}

// left returns how long the watch is kept if no page is read. If that is nothing, it has ended.
func (f *follower) left() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.unseen - time.Since(f.looked)
	if left <= 0 {
		f.fleet = nil
		f.ended()
	}
	return left
}

// active returns what follows the namespace now, or nil.
func (f *follower) active() *fleet.Fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fleet
}

// outage says since when etcd has not answered, or "" if it answers or nothing of the namespace is known.
func (f *follower) outage() string {
	of := f.active()
	if of == nil {
		return ""
	}
	if m := of.Meta(); !m.Answered.IsZero() {
		return qualityOf(m).unconfirmed
	}
	return ""
}

// quality is the time as of which a page is true, and why etcd does not confirm it any more.
type quality struct {
	asOf        time.Time
	unconfirmed string // why etcd has not confirmed it since; "" if it has
}

// seen is a part of the state.
type seen[T any] struct {
	value T
	quality
}

// look returns a part of the state of the namespace, shared with all other viewers of what has that key.
func look[T any](q request, key string, fn func(*fleet.State) T) (found T, _ quality, err error) {
	of := q.console.follower.follow()
	if of == nil {
		return found, quality{}, errClosed
	}
	// It is awaited here, since what took long is read again seldom.
	ctx, cancel := context.WithTimeout(q.Context(), firstWait)
	defer cancel()
	if err := of.Await(ctx, 1); err != nil {
		return found, quality{}, notRead(of, q.console.sess.NamespacePrefix(), err)
	}
	s, _, err := read(q, key, func(context.Context) (s seen[T], err error) {
		of.View(func(state *fleet.State, m fleet.Meta) { s = seen[T]{fn(state), qualityOf(m)} })
		return s, nil
	})
	return s.value, s.quality, err
}

// notRead is the error of a namespace of which nothing is known yet.
func notRead(of *fleet.Fleet, prefix string, err error) error {
	if failure := of.Meta().Failure; failure != nil {
		err = failure
	} else if errors.Is(err, context.DeadlineExceeded) {
		err = errSlow
	}
	return fmt.Errorf("%s was not read yet: %w", prefix, err)
}

func qualityOf(m fleet.Meta) quality {
	s := quality{asOf: m.Answered}
	if !m.Up {
		s.unconfirmed = unanswered(m.Answered, m.Failure)
	}
	return s
}

// unanswered says since when etcd has not answered, and why, if that is known: the end of a read is no reason.
func unanswered(since time.Time, err error) string {
	at := since.UTC().Format(time.TimeOnly)
	if commit.Denied(err) {
		return fmt.Sprintf("etcd has not let this console read since %s UTC: %v", at, err)
	}
	text := fmt.Sprintf("etcd has not answered since %s UTC", at)
	code := grpcstatus.Code(err)
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || code == codes.Canceled || code == codes.DeadlineExceeded {
		return text
	}
	return text + ": " + err.Error()
}

// settle has all pages show what an action has changed.
func (c *console) settle(ctx context.Context) {
	if of := c.follower.active(); of != nil {
		ctx, cancel := context.WithTimeout(ctx, 2*probeEvery)
		defer cancel()
		if resp, err := c.inner.Read(ctx, c.inner.Space().Root()); err == nil {
			_ = of.Await(ctx, resp.Header.Revision)
		}
	}
	c.shared.drop()
}
