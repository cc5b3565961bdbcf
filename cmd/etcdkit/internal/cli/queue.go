package cli

import (
	"context"
	"fmt"
	"iter"

	"github.com/etcdkit/etcdkit/concurrency"
)

// queue is what the verbs need of a semaphore, a mutex, an election, the key of a limiter or its total.
type queue interface {
	Status(ctx context.Context, opts ...concurrency.StatusOption) (concurrency.Status, error)
	Watch(ctx context.Context) iter.Seq2[concurrency.Status, error]
	RequestStop(ctx context.Context, token int64, reason string) error
	EvictToken(ctx context.Context, token int64, reason string) error
}

// election is an election as a queue.
type election struct{ *concurrency.Election }

// Watch yields the state at each change of the leader.
func (e election) Watch(ctx context.Context) iter.Seq2[concurrency.Status, error] {
	return func(yield func(concurrency.Status, error) bool) {
		for _, err := range e.Election.Watch(ctx) {
			var st concurrency.Status
			if err == nil {
				st, err = e.Status(ctx)
			}
			if !yield(st, err) || err != nil {
				return
			}
		}
	}
}

// queueOf returns the queue of a subject. Of a limiter without a key that is its total.
func queueOf(sess *concurrency.Session, s subject) (queue, error) {
	switch s.kind {
	case concurrency.KindSemaphore:
		return semaphoreOf(sess, s)
	case concurrency.KindMutex:
		return concurrency.NewMutex(sess, s.name)
	case concurrency.KindElection:
		el, err := concurrency.NewElection(sess, s.name)
		return election{el}, err
	case concurrency.KindLimiter:
		return semaphoreOf(sess, s)
	default:
		return nil, usageError{fmt.Errorf("%s: this verb is not for limits of a rate, whose holders are processes with shares", s)}
	}
}

// semaphoreOf returns a semaphore, the key of a limiter, or the total of one.
func semaphoreOf(sess *concurrency.Session, s subject) (*concurrency.Semaphore, error) {
	if s.kind == concurrency.KindSemaphore {
		return concurrency.NewSemaphore(sess, s.name, 0, &concurrency.SemaphoreOptions{AdoptLimit: true})
	}
	l, err := limiterOf(sess, s)
	if err != nil {
		return nil, err
	}
	if s.key == "" {
		return l.Total(), nil
	}
	return l.Key(s.key), nil
}

// limiterOf returns a limiter by the limits that are stored, with a total or without.
func limiterOf(sess *concurrency.Session, s subject) (*concurrency.KeyedLimiter, error) {
	return concurrency.NewKeyedLimiter(sess, s.name, 0, &concurrency.KeyedLimiterOptions{AdoptLimit: true, Total: 1})
}
