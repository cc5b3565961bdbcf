package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/observe"
)

// asking is what the verbs that acquire a permit have in common: of what kind, and how long they wait.
type asking struct {
	limit        int
	lock, leader bool
	wait         time.Duration
	noWait       bool
	id, note     string
}

func (q *asking) define(f *pflag.FlagSet) {
	f.IntVar(&q.limit, "limit", 0, "acquire a permit of the semaphore NAME with the limit N: it is stored for a new name, and must be the stored one of another; 0 takes the stored limit as it is")
	f.BoolVar(&q.lock, "lock", false, "lock the mutex NAME (the default)")
	f.BoolVar(&q.leader, "leader", false, "become the leader of the election NAME")
	f.DurationVar(&q.wait, "wait", 0, "wait so long at most (default: until it is granted)")
	f.BoolVarP(&q.noWait, "no-wait", "n", false, "do not wait: exit with 75 if no permit is free")
	f.StringVar(&q.id, "id", "", "ID of the request: at most one live request of NAME has it")
	f.StringVar(&q.note, "note", "", "text for operators, stored with the request")
}

// acquiredBy are the flags by which the kinds are chosen that have permits to acquire.
var acquiredBy = map[concurrency.QueueKind]string{concurrency.KindSemaphore: "--limit", concurrency.KindMutex: "--lock", concurrency.KindElection: "--leader"}

// checkName refuses a name with its kind, as other verbs take it: the flags name the kind.
func checkName(name string) error {
	kind, rest, ok := strings.Cut(name, "/")
	if !ok || !slices.Contains(kinds, concurrency.QueueKind(kind)) {
		return nil
	}
	flag, ok := acquiredBy[concurrency.QueueKind(kind)]
	if !ok {
		return usageError{fmt.Errorf("%s: a %s has no permit to acquire here, only a semaphore, a mutex and an election", name, kind)}
	}
	return usageError{fmt.Errorf("%s: the name is given without its kind: %s %s", name, flag, rest)}
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
		return "", usageError{fmt.Errorf("%s exclude each other", strings.Join(given, " and "))}
	case q.noWait && f.Changed("wait"):
		return "", usageError{errors.New("--wait and --no-wait exclude each other")}
	case q.limit < 0:
		return "", usageError{fmt.Errorf("--limit %d is negative", q.limit)}
	case f.Changed("wait") && q.wait <= 0:
		return "", usageError{fmt.Errorf("--wait %v is not positive; --no-wait does not wait", q.wait)}
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
	switch {
	case q.noWait:
		opts = append(opts, concurrency.Wait(0))
	case q.wait > 0:
		opts = append(opts, concurrency.Wait(q.wait))
	}
	return opts
}

// acquire acquires the permit, and says while it waits when etcd does not answer.
func (a *app) acquire(ctx context.Context, sess *concurrency.Session, ask asking, kind concurrency.QueueKind, name string) (p *concurrency.Permit, err error) {
	_ = a.following(ctx, sess, func(ctx context.Context) error {
		p, err = ask.acquire(ctx, sess, kind, name, a.etcd.timeout)
		return err
	})
	if errors.Is(err, concurrency.ErrLost) || errors.Is(err, concurrency.ErrReleased) { // no permit: it was waiting
		err = &exitError{exitNotAcquired, fmt.Errorf("the request was removed before it was granted: %w", err)}
	}
	return p, err
}

// acquire acquires the permit. ctx bounds the wait alone, and bound a read before it.
func (q *asking) acquire(ctx context.Context, sess *concurrency.Session, kind concurrency.QueueKind, name string, bound time.Duration) (*concurrency.Permit, error) {
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
			return nil, usageError{fmt.Errorf("acquire %q: its stored limit is %d, and --limit asks for %d\n--limit 0 takes the stored limit as it is; 'etcdkit limit NAME N' changes it for all processes.", name, differs.Stored, differs.Wanted)}
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
	if err == nil && !st.Stored {
		err = fmt.Errorf("acquire %q with --limit 0, which takes the stored limit: %w", name, concurrency.ErrNoLimit)
	}
	return err
}

// waitReports reports on standard error why a call waits: its place in the queue, and the holders, with
// their ages and the latest times at which they expire.
type waitReports struct {
	app  *app
	kind concurrency.QueueKind
	sess atomic.Pointer[concurrency.Session] // of the call
}

func (r *waitReports) hooks() observe.Hooks {
	return observe.Hooks{Event: func(ctx context.Context, e observe.Event) {
		if w, ok := e.(observe.Waiting); ok {
			w.Blocking = slices.Clone(w.Blocking) // other hooks have it as well
			r.bound(ctx, w)
			fmt.Fprintln(r.app.std.Err, printable(waitingFor(r.kind, w, time.Now())))
		}
	}}
}

// bound adds until when each holder has its permit at the latest. The first report of a call has no such times,
// since most waits of a program are over before the second one.
func (r *waitReports) bound(ctx context.Context, w observe.Waiting) {
	sess := r.sess.Load()
	if sess == nil || !slices.ContainsFunc(w.Blocking, func(h observe.Holder) bool { return h.ExpiresBy.IsZero() }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.app.etcd.timeout)
	defer cancel()
	q, err := queueOf(sess, subject{kind: r.kind, name: w.Name})
	if err != nil {
		return
	}
	st, err := q.Status(ctx, concurrency.CheckLeases())
	if err != nil {
		return
	}
	for i, h := range w.Blocking {
		for _, now := range st.Holders {
			if now.Token == h.Token {
				w.Blocking[i].ExpiresBy = now.ExpiresBy
			}
		}
	}
}

// mostBlocking is how many holders a report has at most.
const mostBlocking = 10

// waitingFor describes why a call waits.
func waitingFor(kind concurrency.QueueKind, w observe.Waiting, now time.Time) string {
	holders := len(w.Blocking)
	text := fmt.Sprintf("waiting for %s/%s: ", kind, w.Name)
	switch {
	case w.Limit == 0:
		return text + "it is paused by a limit of 0 ('etcdkit limit' changes it)"
	case holders == 0: // it is far from its admission
		return text + fmt.Sprintf("at most %d requests before this one", w.Ahead)
	case holders < mostBlocking:
		text += fmt.Sprintf("%s in the queue, behind ", ordinal(max(1, w.Ahead-holders+1)))
	default:
		text += fmt.Sprintf("%d requests before this one, the oldest of ", w.Ahead)
	}
	for i, h := range w.Blocking {
		if i > 0 {
			text += ", "
		}
		if i == 2 && holders > 3 {
			text += strconv.Itoa(holders-2) + " others"
			break
		}
		text += h.Owner + " (" + brief(now.Sub(h.Requested))
		if !h.ExpiresBy.IsZero() {
			text += ", until " + h.ExpiresBy.UTC().Format(time.TimeOnly) + " UTC at the latest if it does not renew"
		}
		text += ")"
	}
	return text
}
