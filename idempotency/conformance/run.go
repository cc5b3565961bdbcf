package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options say how the promises are tried. nil means all defaults.
type Options struct {
	// Prefix is what all keys begin with: a role that is confined to it is enough.
	// Defaults to "/conformance/".
	Prefix string
	// Patience bounds how long anything may take that has to happen. It has to be
	// longer than etcd needs to notice that a process has died. Defaults to 30
	// seconds.
	Patience time.Duration
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Prefix == "" {
		out.Prefix = "/conformance/"
	}
	if out.Patience <= 0 {
		out.Patience = 30 * time.Second
	}
	return out
}

// Idempotency tries all promises of an idempotency store on a cluster, each as a
// parallel subtest with its name. The configuration is what clientv3.New gets for each
// instance.
func Idempotency(t *testing.T, cluster clientv3.Config, store Store, opts *Options) {
	t.Helper()
	// Where there is no cluster, one failure is enough.
	w, err := newWorld(context.Background(), cluster, store, opts.withDefaults(), "reach")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.end(true); err != nil {
		t.Fatal(err)
	}
	for _, p := range Promises() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			err := p.Check(context.Background(), cluster, store, opts)
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				t.Skip(err)
			case err != nil:
				t.Errorf("promised: %s\nbut: %v", p.Text, err)
			}
		})
	}
}

// Promise is something that a store promises.
type Promise struct {
	Name string // of the subtest
	Text string // what is promised
	try  func(w *world)
}

// Promises returns the promises of an idempotency store.
func Promises() []Promise {
	return []Promise{
		{"OneExecution", "of many calls at once, in several processes, one runs, and all return its result", oneExecution},
		{"Replay", "after an outcome nothing runs again in any process, and all calls return that outcome", replay},
		{"Wait", "a caller that waits gets the result; one that gives up, or goes away, changes nothing", wait},
		{"Reject", "a rejected caller learns that the request is in progress, and does not change the attempt", reject},
		{"Mismatch", "a key with another payload is refused, in progress as well as done; another key with the same payload is not", mismatch},
		{"Scopes", "scope, operation and ID all count, and cannot be mistaken for each other", scopes},
		{"Invalid", "a request without an ID is refused, and nothing runs", invalidKey},
		{"RawKey", "the ID that the client has chosen is in no key of etcd", rawKey},
		{"LargeResult", "the first caller gets a result of any size, and nothing runs again for its sake", largeResult},
		{"ErrorFreesTheKey", "an error is no outcome: the next call runs", errorFreesTheKey},
		{"ErrorRemembered", "a failure that is to be remembered is returned to all callers, and nothing runs again", errorRemembered},
		{"Panic", "after a panic the attempt counts as lost, and no caller waits for it", panics},
		{"CallerGoesAway", "a caller who goes away neither ends the work nor loses its outcome", callerGoesAway},
		{"OwnKeys", "what is given to Attach changes with the outcome, once, and only if its conditions hold", ownKeys},
		{"Steps", "a recovery point that was reached is not run again, after an error or a crash", steps},
		{"CrashTakeOver", "after a crash one takes over, as a later attempt with a greater token and the same child keys", crashTakeOver},
		{"CrashRefuse", "after a crash nothing runs if either caller wanted it so", crashRefuse},
		{"CrashAfterOutcome", "a crash after the outcome loses nothing", crashAfterOutcome},
		{"SlowAndDead", "a slow process keeps its attempt for as long as it lives; a dead one's is taken over when etcd notices", slowAndDead},
		{"Zombie", "an attempt that another has taken over writes nothing any more", zombie},
		{"LostAnswers", "an answer of etcd's that is lost makes nothing run twice, and loses nothing", lostAnswers},
		{"ReturnedNotRecorded", "while etcd cannot be reached for the outcome and the process lives, no other call runs; the outcome is recorded when etcd is back", returnedNotRecorded},
		{"Retention", "an outcome is kept as long as was said, and then goes", retention},
		{"NothingIsLeft", "when all is closed and retention has passed, no key and no lease is left", nothingIsLeft},
	}
}

// Check tries the promise. It returns an error that says what was not kept, nil if nothing
// was seen, and one that is errors.ErrUnsupported if the store cannot do what it is about.
// It may be called concurrently.
func (p Promise) Check(ctx context.Context, cluster clientv3.Config, store Store, opts *Options) (err error) {
	w, err := newWorld(ctx, cluster, store, opts.withDefaults(), p.Name)
	if err != nil {
		return err
	}
	defer func() {
		v := recover()
		broken, ok := v.(stop)
		if v != nil && !ok {
			panic(v)
		}
		err = broken.err
		err = errors.Join(err, w.end(err == nil))
	}()
	p.try(w)
	return nil
}

// stop ends a promise from within: world.failf, world.must.
type stop struct{ err error }

func (w *world) failf(format string, args ...any) {
	panic(stop{fmt.Errorf(format, args...)})
}
