package permits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/concurrency"
)

// asking is what the verbs that acquire a permit have in common: of what kind, and how long they wait.
type asking struct {
	limit        int
	lock, leader bool
	wait         time.Duration
	noWait       bool
	id, note     string
	lasts        time.Duration // how long the permit lasts at most, or 0: until it is released
}

func (q *asking) define(f *pflag.FlagSet) {
	f.IntVar(&q.limit, "limit", 0,
		"acquire a permit of the semaphore NAME with the limit N: it is stored for a new name, and must be the stored one of another; "+
			"0 takes the stored limit as it is")
	f.BoolVar(&q.lock, "lock", false, "lock the mutex NAME (the default)")
	f.BoolVar(&q.leader, "leader", false, "become the leader of the election NAME")
	f.DurationVar(&q.wait, "wait", 0, "wait so long at most (default: until it is granted)")
	f.BoolVarP(&q.noWait, "no-wait", "n", false, "do not wait: exit with 75 if no permit is free")
	f.StringVar(&q.id, "id", "", "ID of the request: at most one live request of NAME has it")
	f.StringVar(&q.note, "note", "", "text for operators, stored with the request")
}

// acquiredBy are the flags by which the kinds are chosen that have permits to acquire.
var acquiredBy = map[concurrency.QueueKind]string{concurrency.KindSemaphore: "--limit", concurrency.KindMutex: "--lock",
	concurrency.KindElection: "--leader"}

// checkName refuses a name with its kind, as other verbs take it: the flags name the kind.
func checkName(name string) error {
	kind, rest, ok := strings.Cut(name, "/")
	if !ok || !slices.Contains(queue.Kinds, concurrency.QueueKind(kind)) {
		return nil
	}
	flag, ok := acquiredBy[concurrency.QueueKind(kind)]
	if !ok {
		return exit.Usagef("%s: a %s has no permit to acquire here, only a semaphore, a mutex and an election", name, kind)
	}
	return exit.Usagef("%s: the name is given without its kind: %s %s", name, flag, rest)
}

// check returns the kind, or an error if the flags contradict each other.
func (q *asking) check(f *pflag.FlagSet) (concurrency.QueueKind, error) {
	var given []string
	for _, name := range []string{"limit", "lock", "leader"} {
		if f.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	switch {
	case len(given) > 1:
		return "", exit.Usagef("%s exclude each other", strings.Join(given, " and "))
	case q.noWait && f.Changed("wait"):
		return "", exit.Usagef("--wait and --no-wait exclude each other")
	case q.limit < 0:
		return "", exit.Usagef("--limit %d is negative", q.limit)
	case f.Changed("wait") && q.wait <= 0:
		return "", exit.Usagef("--wait %v is not positive; --no-wait does not wait", q.wait)
	case f.Changed("limit"):
		return concurrency.KindSemaphore, nil
	case q.leader:
		return concurrency.KindElection, nil
	default:
		return concurrency.KindMutex, nil
	}
}

// options are those of the call.
func (q *asking) options() (opts []concurrency.AcquireOption) {
	if q.id != "" {
		opts = append(opts, concurrency.ID(q.id))
	}
	if q.note != "" {
		opts = append(opts, concurrency.Note(q.note))
	}
	if q.lasts > 0 {
		opts = append(opts, concurrency.MaxHold(q.lasts))
	}
	switch {
	case q.noWait:
		opts = append(opts, concurrency.Wait(0))
	case q.wait > 0:
		opts = append(opts, concurrency.Wait(q.wait))
	}
	return opts
}

// waiting is how a verb waits for its permit, and says when etcd does not answer: Call.Attending, or Call.Following if its
// output is what the permit is acquired for.
type waiting func(context.Context, *concurrency.Session, func(context.Context) error) error

// acquire acquires the permit. It may return one beside the error of a wait whose output has no reader.
func acquire(
	ctx context.Context, wait waiting, sess *concurrency.Session, ask asking, kind concurrency.QueueKind, name string, bound time.Duration,
) (p *concurrency.Permit, err error) {
	err = wait(ctx, sess, func(ctx context.Context) (err error) {
		p, err = ask.acquire(ctx, sess, kind, name, bound)
		return err
	})
	if errors.Is(err, concurrency.ErrLost) || errors.Is(err, concurrency.ErrReleased) { // no permit: it was waiting
		err = exit.Errorf(exit.NotAcquired, "the request was ended before it was granted: %w", err)
	}
	return p, err
}

// acquire acquires the permit. ctx bounds the wait alone, and bound a read before it.
func (q *asking) acquire(
	ctx context.Context, sess *concurrency.Session, kind concurrency.QueueKind, name string, bound time.Duration,
) (*concurrency.Permit, error) {
	switch kind {
	case concurrency.KindSemaphore:
		sm, err := concurrency.NewSemaphore(sess, name, q.limit, &concurrency.SemaphoreOptions{AdoptLimit: q.limit == 0})
		if err == nil && q.limit == 0 {
			err = stored(ctx, sm, name, bound)
		}
		if err != nil {
			return nil, err
		}
		p, err := sm.Acquire(ctx, q.options()...)
		if differs := (*concurrency.LimitMismatchError)(nil); errors.As(err, &differs) {
			return nil, exit.Usagef("acquire %q: its stored limit is %d, and --limit asks for %d\n--limit 0 takes the stored limit as it "+
				"is; 'etcdkit limit NAME N' changes it for all processes.", name, differs.Stored, differs.Wanted)
		}
		return p, err
	case concurrency.KindElection:
		el, err := concurrency.NewElection(sess, name)
		if err != nil {
			return nil, err
		}
		return el.Campaign(ctx, q.options()...)
	default:
		m, err := concurrency.NewMutex(sess, name)
		if err != nil {
			return nil, err
		}
		return m.Lock(ctx, q.options()...)
	}
}

// stored returns an error if a semaphore has no stored limit: an acquire would store the one that it asks for.
func stored(ctx context.Context, sm *concurrency.Semaphore, name string, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	st, err := sm.Status(ctx)
	if err == nil {
		err = queue.Unreadable(st.Unreadable)
	}
	if err == nil && !st.Stored {
		err = fmt.Errorf("acquire %q with --limit 0, which takes the stored limit: %w", name, concurrency.ErrNoLimit)
	}
	return err
}
