package main

import (
	"context"
	"sync"
)

// log keeps all events of a run. It is safe for concurrent use.
type log struct {
	mu     sync.Mutex
	events []event
	more   chan struct{} // closed and replaced at each event
}

func newLog() *log { return &log{more: make(chan struct{})} }

func (l *log) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	close(l.more)
	l.more = make(chan struct{})
}

// all returns the events so far.
func (l *log) all() []event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[:len(l.events):len(l.events)]
}

// await returns the first event that is wanted. It returns ctx's cause if ctx ends first.
func (l *log) await(ctx context.Context, want func(event) bool) (event, error) {
	for seen := 0; ; {
		l.mu.Lock()
		fresh, more := l.events[seen:len(l.events):len(l.events)], l.more
		l.mu.Unlock()
		for _, e := range fresh {
			if want(e) {
				return e, nil
			}
		}
		seen += len(fresh)
		select {
		case <-more:
		case <-ctx.Done():
			return event{}, context.Cause(ctx)
		}
	}
}
