package embedtest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// If etcd cannot continue (a full disk, damaged data), it logs the reason at level Fatal or
// Panic and expects the process to end. Here the goroutine that logged ends, and the member
// is stopped. See docs/design/0010-etcd-gives-up.md.

// fatalHook is what zap calls for such a log entry, in one run of a member.
type fatalHook struct {
	m *member
	r *running
}

// logger returns the logger of one run of the member.
func (m *member) logger(r *running) *zap.Logger {
	hook := fatalHook{m, r}
	return m.s.log.Named(m.name).WithOptions(zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// OnWrite ends its goroutine: etcd's code expects that Fatal does not return.
func (h fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	reason := entry.Message
	enc := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "msg", SkipLineEnding: true})
	if b, err := enc.EncodeEntry(zapcore.Entry{Message: reason}, fields); err == nil {
		reason = strings.ReplaceAll(b.String(), "\t", " ")
	}
	h.m.fail(h.r, reason)
	runtime.Goexit()
}

// fail ends a run of the member for the reason that etcd logged. Only the first reason of a
// run counts; later ones are its consequences.
func (m *member) fail(r *running, reason string) {
	err := fmt.Errorf("embedtest: member %s: etcd failed: %s", m.name, reason)
	if room := m.s.checkRoom(m); room != nil {
		err = fmt.Errorf("%w; %w", err, room)
	}
	r.mu.Lock()
	first, up := r.ctx.Err() == nil, r.up
	r.end(err)
	r.mu.Unlock()
	if first && up && m.s.failed(err) {
		go m.stop(true)
	}
}

// failedWait is how long await still waits after etcd has failed.
const failedWait = time.Second

// launch starts etcd for a run of the member, on a separate goroutine, which ends if etcd
// fails.
func (m *member) launch(r *running) error {
	cfg := m.config(r)
	var etcd *embed.Etcd
	var err error
	ended := r.await(func() {
		defer func() {
			if p := recover(); p != nil {
				m.fail(r, fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
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
		m.abandon() // nothing can stop what etcd has started
	}
	return cause
}

// await runs f on a separate goroutine and waits for its end. If etcd fails, f may wait for
// ever for a lock that the failed goroutine holds. await then returns false after
// failedWait, while f continues.
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
	case <-time.After(failedWait):
		return false
	}
}

// unstoppable is set once etcd has left goroutines behind that nothing can stop.
var unstoppable atomic.Bool

// abandon marks the member as one whose etcd has not ended.
func (m *member) abandon() {
	m.stuck = true
	unstoppable.Store(true)
}
