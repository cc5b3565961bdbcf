package cli

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
)

// messages writes from a goroutine of its own: a reader that does not read, as a pager or a terminal that is
// paused with ^S, delays nothing but the messages. Messages above mostMessages are dropped.
type messages struct {
	queue chan []byte
	done  chan struct{}

	mu     sync.Mutex
	closed bool
}

// mostMessages is how many messages wait for the reader at most, and lastMessages for how long the end of the verb waits for it.
const (
	mostMessages = 64
	lastMessages = time.Second
)

// surviveReader has a verb outlive the reader of its messages, and not wait for it: what the verb holds is
// worth more than they are. Without it, a write to a pipe that was closed ends the process. A command that the
// verb starts is not affected.
func (a *app) surviveReader() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	a.messages = newMessages(a.std.Err)
	a.std.Err = a.messages
}

func newMessages(to io.Writer) *messages {
	m := &messages{queue: make(chan []byte, mostMessages), done: make(chan struct{})}
	go m.pass(to)
	return m
}

// pass writes messages until close.
func (m *messages) pass(to io.Writer) {
	defer close(m.done)
	guard.WriteInBackground()
	for text := range m.queue {
		_, _ = to.Write(text) // the reader may be gone
	}
}

// Write never blocks, and never fails.
func (m *messages) Write(text []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		select {
		case m.queue <- bytes.Clone(text):
		default:
		}
	}
	return len(text), nil
}

// close waits until the messages are written, or lastMessages have passed. A nil messages has none.
func (m *messages) close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.queue)
	}
	m.mu.Unlock()
	select {
	case <-m.done:
	case <-time.After(lastMessages):
	}
}
