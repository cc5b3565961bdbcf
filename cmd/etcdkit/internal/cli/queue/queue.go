package queue

import (
	"context"
	"iter"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
)

// Queue is what the verbs need of a semaphore, a mutex, an election, the key of a limiter or its total.
type Queue interface {
	// Status returns an error as that of a Semaphore does, such as concurrency.ErrClosed.
	Status(ctx context.Context, opts ...concurrency.StatusOption) (concurrency.Status, error)
	Watch(ctx context.Context) iter.Seq2[concurrency.Status, error]
	// RequestStop returns an error as that of a Semaphore does, such as concurrency.ErrNotHeld.
	RequestStop(ctx context.Context, token int64, reason string) error
	// EvictToken returns an error as that of a Semaphore does, such as concurrency.ErrNotHeld.
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

// Of returns the queue of a subject. Of a limiter without a key that is its total. It returns an error of usage for
// the limit of a rate, and otherwise those of the queue, such as concurrency.ErrInvalid for its name.
func Of(sess *concurrency.Session, s Subject) (Queue, error) {
	switch s.Kind {
	case concurrency.KindSemaphore:
		return SemaphoreOf(sess, s)
	case concurrency.KindMutex:
		return concurrency.NewMutex(sess, s.Name)
	case concurrency.KindElection:
		el, err := concurrency.NewElection(sess, s.Name)
		return election{el}, err
	case concurrency.KindLimiter:
		return SemaphoreOf(sess, s)
	default:
		return nil, exit.Usagef("%s: this verb is not for limits of a rate, whose holders are processes with shares", s)
	}
}

// SemaphoreOf returns a semaphore, the key of a limiter, or the total of one, and otherwise
// concurrency.ErrInvalid or ErrClosed.
func SemaphoreOf(sess *concurrency.Session, s Subject) (*concurrency.Semaphore, error) {
	if s.Kind == concurrency.KindSemaphore {
		return concurrency.NewSemaphore(sess, s.Name, 0, &concurrency.SemaphoreOptions{AdoptLimit: true})
	}
	l, err := LimiterOf(sess, s)
	if err != nil {
		return nil, err
	}
	if s.Key == "" {
		return l.Total(), nil
	}
	return l.Key(s.Key), nil
}

// LimiterOf returns a limiter by the limits that are stored, with a total or without, and otherwise
// concurrency.ErrInvalid or ErrClosed.
func LimiterOf(sess *concurrency.Session, s Subject) (*concurrency.KeyedLimiter, error) {
	return concurrency.NewKeyedLimiter(sess, s.Name, 0, &concurrency.KeyedLimiterOptions{AdoptLimit: true, Total: 1})
}
