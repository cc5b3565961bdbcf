package output

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/guard"
)

// Lines is a writer of lines for people: messages, questions, logs. What steers a terminal is escaped in each, whether its
// text is escaped already or not. Lines are written whole.
type Lines struct{ io.Writer }

// Write writes lines. It returns an error of the writer below.
func (l Lines) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t") // between the parts of a line of a log
		for j, cell := range cells {
			cells[j] = Printable(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	if _, err := l.Writer.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Messages writes from a goroutine of its own: a reader that does not read, as a pager or a terminal that is
// paused with ^S, delays nothing but the messages. Those above mostMessages are dropped.
type Messages struct {
	queue chan []byte
	done  chan struct{}

	mu     sync.Mutex
	closed bool
}

// mostMessages is how many messages wait for the reader at most: more than the 200 of an action of the console on many.
const mostMessages = 1000

// LastMessages is how long the end of a verb waits for the reader of its messages.
const LastMessages = time.Second

// NewMessages returns messages that are written to a stream.
func NewMessages(to io.Writer) *Messages {
	m := &Messages{queue: make(chan []byte, mostMessages), done: make(chan struct{})}
	go m.pass(to)
	return m
}

// pass writes messages until Close.
func (m *Messages) pass(to io.Writer) {
	defer close(m.done)
	guard.WriteInBackground()
	for text := range m.queue {
		_, _ = to.Write(text) // the reader may be gone
	}
}

// Write never blocks, and never fails.
func (m *Messages) Write(text []byte) (int, error) {
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

// Close waits until the messages are written, or LastMessages have passed. Nil has none.
func (m *Messages) Close() {
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
	case <-time.After(LastMessages):
	}
}
