package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/concurrency"
)

// Subject is a queue as an argument names it: KIND/NAME, or NAME if one kind alone has it. Names have
// no '/'. What follows the name of a limiter is one of its keys.
type Subject struct {
	Kind concurrency.QueueKind // "" if the argument has none
	Name string
	Key  string // of a limiter, or ""
}

// Kinds are the kinds of queue.
var Kinds = []concurrency.QueueKind{
	concurrency.KindSemaphore, concurrency.KindLimiter, concurrency.KindMutex, concurrency.KindElection, concurrency.KindRate,
}

// String returns the subject as Parse reads it.
func (s Subject) String() string {
	if s.Key != "" {
		return fmt.Sprintf("%s/%s/%s", s.Kind, s.Name, s.Key)
	}
	return fmt.Sprintf("%s/%s", s.Kind, s.Name)
}

// Fixed reports whether the limit is 1 and is not stored. Of such a queue etcd has its requests alone.
func (s Subject) Fixed() bool {
	return s.Kind == concurrency.KindMutex || s.Kind == concurrency.KindElection
}

// Parse reads an argument. It returns an error of usage if that is neither NAME nor KIND/NAME.
func Parse(arg string) (Subject, error) {
	kind, rest, ok := strings.Cut(arg, "/")
	if arg == "" { // as of a variable of a script that is not set
		return Subject{}, exit.Usagef("NAME is empty")
	}
	if !ok {
		return Subject{Name: arg}, nil
	}
	s := Subject{Kind: concurrency.QueueKind(kind)}
	if !slices.Contains(Kinds, s.Kind) {
		return Subject{}, exit.Usagef("%q: %q is no kind of queue; KIND/NAME has semaphore, limiter, mutex, election or rate, and a key of limiter %s is limiter/%s", arg, kind, kind, arg)
	}
	if s.Name, s.Key, ok = strings.Cut(rest, "/"); ok && (s.Kind != concurrency.KindLimiter || s.Key == "") {
		return Subject{}, exit.Usagef("%q: a key may follow the name of a limiter alone, and is not empty", arg)
	}
	return s, nil
}

// Resolve finds the kind of a name that was given without one. It returns ErrNoQueue, an error of
// usage if there are several, or one of etcd.
func (s Subject) Resolve(ctx context.Context, sess *concurrency.Session) (Subject, error) {
	if s.Kind != "" {
		return s, nil
	}
	var found []string
	for q, err := range sess.Queues(ctx) {
		if err != nil {
			return Subject{}, err
		}
		if q.Name == s.Name {
			s.Kind = q.Kind
			found = append(found, s.String())
		}
	}
	switch len(found) {
	case 0:
		return Subject{}, fmt.Errorf("%q: %w", s.Name, ErrNoQueue)
	case 1:
		return s, nil
	}
	return Subject{}, exit.Usagef("%q has more than one kind: name one of %s", s.Name, strings.Join(found, ", "))
}

// ErrNothing says that etcd has nothing of a queue whose kind is known.
var ErrNothing = errors.New("etcd has nothing of that name: no limit and no request ('etcdkit ls' lists what it has)")

// ErrNoQueue says that etcd has no queue of a name, of any kind.
var ErrNoQueue = errors.New("etcd has no queue of that name in this namespace; " +
	"a mutex, an election or the key of a limiter without requests leaves nothing there ('etcdkit ls' lists the others)")
