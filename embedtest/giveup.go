package embedtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// When etcd cannot go on (a full disk, damaged data) it logs the reason at level
// Fatal or Panic, and expects the process to end. Here the goroutine that logged it
// ends, and the member is stopped. See docs/design/0010-etcd-gives-up.md.

// giveUpHook is what zap calls for such a log entry, in one life of a member.
type giveUpHook struct {
	m *member
	r *running
}

// logger returns the logger of one life of the member.
func (m *member) logger(r *running) *zap.Logger {
	hook := giveUpHook{m, r}
	return m.c.log.Named(m.name).WithOptions(zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// OnWrite ends its goroutine, as etcd expects: what follows Fatal is written for the
// case that Fatal does not return.
func (h giveUpHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	reason := entry.Message
	enc := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "msg", SkipLineEnding: true})
	if b, err := enc.EncodeEntry(zapcore.Entry{Message: reason}, fields); err == nil {
		reason = strings.ReplaceAll(b.String(), "\t", " ")
	}
	h.m.giveUp(h.r, reason)
	runtime.Goexit()
}

// giveUp ends a life of the member for the reason that etcd logged. Only the first
// reason of a life counts; others follow from it.
func (m *member) giveUp(r *running, reason string) {
	err := fmt.Errorf("embedtest: etcd of member %s gave up: %s", m.name, reason)
	if room := m.c.checkRoom(m); room != nil {
		err = fmt.Errorf("%w; %w", err, room)
	}
	r.mu.Lock()
	first, up := r.ctx.Err() == nil, r.up
	r.end(err)
	r.mu.Unlock()
	if first && up && m.c.memberGaveUp(err) {
		go m.stop(true)
	}
}

// memberGaveUp records that a member which had started gave up. It reports whether the
// cluster was in use; while it starts or closes, the call that does so returns err.
func (c *Cluster) memberGaveUp(err error) (inUse bool) {
	c.mu.Lock()
	if c.gaveUp == nil {
		c.gaveUp = err
	}
	inUse = c.started && !c.closed
	c.mu.Unlock()
	c.abort(err)
	if !inUse {
		return false
	}
	// At once, and not through the test, which may wait for ever for what the member
	// would have done.
	fmt.Fprintf(os.Stderr, "%v\n%s", err, c.logged())
	if c.tb == nil {
		os.Exit(1) // no test can report it
	}
	return true
}

// begun marks the end of the start, which returned err. It returns the reason if a
// member gave up meanwhile, and else err.
func (c *Cluster) begun(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gaveUp != nil {
		return c.gaveUp
	}
	c.started = err == nil
	return err
}

// lockWait is how long await waits for what may never end.
const lockWait = time.Second

// launch starts etcd for a life of the member. It does so on a goroutine of its own,
// because that goroutine ends if etcd gives up.
func (m *member) launch(r *running) error {
	cfg := m.config(r)
	var etcd *embed.Etcd
	var err error
	ended := r.await(func() {
		defer func() {
			if p := recover(); p != nil {
				m.giveUp(r, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		etcd, err = embed.StartEtcd(cfg)
	})
	if ended && err != nil {
		return fmt.Errorf("embedtest: start member %s: %w", m.name, err)
	}
	r.mu.Lock()
	cause := context.Cause(r.ctx)
	r.up = cause == nil
	r.mu.Unlock()
	switch {
	case cause == nil:
		r.etcd = etcd
	case ended && etcd != nil:
		r.etcd = etcd
		m.shutdown(r, true)
	default:
		m.leave() // nothing can end what etcd has started
	}
	return cause
}

// await runs f on a goroutine of its own and waits for its end. If etcd gives up, f
// may wait for ever for a lock that the goroutine that gave up had taken; then await
// returns false after a while, and f goes on.
func (r *running) await(f func()) (ended bool) {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
		return true
	case <-r.ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(lockWait):
		return false
	}
}

// left is set once etcd has left goroutines behind that nothing can end.
var left atomic.Bool

// leave marks the member as one whose etcd has not ended.
func (m *member) leave() {
	m.stuck = true
	left.Store(true)
}
