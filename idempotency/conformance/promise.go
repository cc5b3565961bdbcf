package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Options configure the tests of the promises. nil means all defaults.
type Options struct {
	// Prefix is the prefix of all keys; a role with access to this prefix is enough. Defaults
	// to "/conformance/".
	Prefix string
	// Patience is at most how long a test waits for each expected event. It must be longer than
	// the expiry of a dead process's lease takes. Defaults to 30 seconds.
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

// Idempotency tests all promises of an idempotency store on a cluster, each in a parallel subtest
// with its name. Each client is created from the cluster's configuration.
func Idempotency(t *testing.T, cluster clientv3.Config, store Store, opts *Options) {
	t.Helper()
	// Without a cluster, fail once rather than for each promise.
	f, err := newFixture(context.Background(), cluster, store, opts.withDefaults(), "reach")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.end(true); err != nil {
		t.Fatal(err)
	}
	for _, p := range Promises() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			err := p.Check(context.Background(), cluster, store, opts)
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				t.Skipf("the store does not support what is promised: %v", err)
			case err != nil:
				t.Errorf("promised: %s\nbut: %v", p.Text, err)
			}
		})
	}
}

// Promise is one promise of an idempotency store.
type Promise struct {
	Name string // of the subtest
	Text string // the promise in words
	try  func(f *fixture)
}

// Promises returns the promises of an idempotency store.
func Promises() []Promise {
	return []Promise{
		{"OneExecution", "of many calls at the same time, in several processes, one executes the request, and all return its result", oneExecution},
		{"Replay", "after an outcome is recorded, no process executes the request again, and all calls return that outcome", replay},
		{"Wait", "a waiting call gets the result; a call that stops waiting, or whose context ends, changes nothing", wait},
		{"NoWait", "a call that does not wait returns that the request is in progress, and does not change the attempt", noWaiting},
		{"Mismatch", "a key with another payload is refused, in progress as well as done; another key with the same payload is not", mismatch},
		{"Scopes", "two requests that differ in scope, operation or ID are two requests", scopes},
		{"Invalid", "a request without an ID is refused, and does not execute", invalidKey},
		{"RawKey", "no key in etcd contains the ID that the client has chosen", rawKey},
		{"LargeResult", "the first call gets a result of any size, and the request does not execute again because of its size", largeResult},
		{"ErrorReleasesTheKey", "an error of the function is no outcome: the next call executes the request", errorReleasesTheKey},
		{"ErrorRemembered", "a failure to be remembered is returned to all calls, and the request does not execute again", errorRemembered},
		{"Panic", "after a panic the attempt is lost, and no call waits for it", panics},
		{"CallerDisconnects", "a caller whose context ends neither ends the work nor loses its outcome", callerDisconnects},
		{"OwnKeys", "operations given to Attach take effect once, with the outcome, and only if their conditions are met", ownKeys},
		{"Steps", "a recorded step does not execute again, after an error or a crash", steps},
		{"CrashTakeOver", "after a crash one call takes over, as a later attempt with a greater token and the same child keys", crashTakeOver},
		{"CrashRefuse", "after a crash the request does not execute again if the lost attempt or the next call refuses it", crashRefuse},
		{"CrashAfterOutcome", "a crash after the outcome is recorded loses nothing", crashAfterOutcome},
		{"SlowAndDead", "a slow process keeps its attempt while it lives; the attempt of a dead one is taken over after its lease has expired", slowAndDead},
		{"Zombie", "an attempt that another one has taken over writes nothing", zombie},
		{"LostResponses", "a lost response of etcd neither executes the request twice nor loses its outcome", lostResponses},
		{"ReturnedNotRecorded", "while etcd is unreachable after the function has returned, no other call executes the request; the outcome is recorded when etcd is reachable", returnedNotRecorded},
		{"Retention", "an outcome is kept for its retention, and removed after it", retention},
		{"NothingIsLeft", "after the end of all instances and of the retention, no key and no lease is left", nothingIsLeft},
	}
}

// Check tests the promise on a cluster. It returns nil if the test found no violation,
// errors.ErrUnsupported if the store lacks what the promise is about, and otherwise an error that
// describes the violation. It may be called concurrently.
func (p Promise) Check(ctx context.Context, cluster clientv3.Config, store Store, opts *Options) (err error) {
	f, err := newFixture(ctx, cluster, store, opts.withDefaults(), p.Name)
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
		err = errors.Join(err, f.end(err == nil))
	}()
	p.try(f)
	return nil
}

// stop is the panic by which failf ends a promise.
type stop struct{ err error }

// failf ends the promise with a violation.
func (f *fixture) failf(format string, args ...any) {
	panic(stop{fmt.Errorf(format, args...)})
}
