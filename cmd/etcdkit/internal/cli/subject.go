package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/concurrency"
)

// subject is a queue as an argument names it: KIND/NAME, or NAME if one kind alone has it. Names have
// no '/'. What follows the name of a limiter is one of its keys.
type subject struct {
	kind concurrency.QueueKind // "" if the argument has none
	name string
	key  string // of a limiter, or ""
}

var kinds = []concurrency.QueueKind{concurrency.KindSemaphore, concurrency.KindLimiter, concurrency.KindMutex, concurrency.KindElection, concurrency.KindRate}

func (s subject) String() string {
	if s.key != "" {
		return fmt.Sprintf("%s/%s/%s", s.kind, s.name, s.key)
	}
	return fmt.Sprintf("%s/%s", s.kind, s.name)
}

// fixed reports whether the limit is 1 and is not stored. Of such a queue etcd has its requests alone.
func (s subject) fixed() bool {
	return s.kind == concurrency.KindMutex || s.kind == concurrency.KindElection
}

// parseSubject reads an argument.
func parseSubject(arg string) (subject, error) {
	kind, rest, ok := strings.Cut(arg, "/")
	if arg == "" { // as of a variable of a script that is not set
		return subject{}, usageError{errors.New("NAME is empty")}
	}
	if !ok {
		return subject{name: arg}, nil
	}
	s := subject{kind: concurrency.QueueKind(kind)}
	if !slices.Contains(kinds, s.kind) {
		return subject{}, usageError{fmt.Errorf("%q: %q is no kind of queue; KIND/NAME has semaphore, limiter, mutex, election or rate", arg, kind)}
	}
	if s.name, s.key, ok = strings.Cut(rest, "/"); ok && (s.kind != concurrency.KindLimiter || s.key == "") {
		return subject{}, usageError{fmt.Errorf("%q: a key may follow the name of a limiter alone, and is not empty", arg)}
	}
	return s, nil
}

// resolve finds the kind of a name that was given without one.
func (s subject) resolve(ctx context.Context, sess *concurrency.Session) (subject, error) {
	if s.kind != "" {
		return s, nil
	}
	var found []string
	for q, err := range sess.Queues(ctx) {
		if err != nil {
			return subject{}, err
		}
		if q.Name == s.name {
			s.kind = q.Kind
			found = append(found, s.String())
		}
	}
	switch len(found) {
	case 0:
		return subject{}, fmt.Errorf("%q: %w", s.name, errNoQueue)
	case 1:
		return s, nil
	}
	return subject{}, usageError{fmt.Errorf("%q has more than one kind: name one of %s", s.name, strings.Join(found, ", "))}
}

var errNothing = errors.New("etcd has nothing of that name: no limit and no request ('etcdkit ls' lists what it has)")

var errNoQueue = errors.New("etcd has no queue of that name in this namespace; a mutex or election without requests leaves nothing there ('etcdkit ls' lists the others)")
