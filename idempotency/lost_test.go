package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
)

// crash ends an instance as if its process had died: nothing more is sent.
func (in instance) crash(t testing.TB, f fixture) {
	t.Helper()
	lease := in.sess.Lease()
	require.NoError(t, in.client.Close())
	// The client's end may have ended the lease already.
	if err := f.ExpireLease(ctxT(t), lease); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		require.NoError(t, err)
	}
}

// After a crash one of the duplicates takes over, a waiting one, too.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	type answer struct {
		res idempotency.Result[int]
		err error
	}
	answers := make(chan answer, 8)
	for n := range 8 {
		go func() {
			res, err := idempotency.Do(ctxT(t), []instance{b, c}[n%2].Store, key("1"), "payload", func(_ context.Context, at *idempotency.Attempt) (int, error) {
				return at.Attempt(), nil
			})
			answers <- answer{res, err}
		}()
	}
	require.Eventually(t, func() bool { return idempotency.Flights(b.Store)+idempotency.Flights(c.Store) == 2 }, soon, 5*time.Millisecond)
	a.crash(t, f)
	replays := 0
	for range 8 {
		x := got(t, answers, "an answer")
		require.NoError(t, x.err)
		require.Equal(t, 2, x.res.Value)
		require.Greater(t, x.res.Token, at.Token())
		if x.res.Replayed {
			replays++
		}
	}
	require.Equal(t, 7, replays)
	require.EqualValues(t, 1, b.Stats().TakenOver+c.Stats().TakenOver)
}

// An outcome that an operator's store records is kept as long as the service would have kept it, though the two
// have other options: for RetainUnknown, which no Retain exceeds.
func TestResolvedForTheService(t *testing.T) {
	t.Parallel()
	const days = 10 * 24 * time.Hour
	for _, what := range []idempotency.Resolution{idempotency.WasDone([]byte("1")), idempotency.HasFailed("declined")} {
		f := own(t)
		service, operator := f.instance(nil, &idempotency.Options{Retain: days, RetainUnknown: 2 * days}), f.instance(nil, nil)
		begin(t, service, key("1"), idempotency.OnLost(idempotency.Refuse))
		service.crash(t, f)
		require.NoError(t, operator.Resolve(ctxT(t), operator.Ref(key("1")), what))
		kept := f.keptFor(time.Now(), "/record/", 1)
		require.GreaterOrEqual(t, kept, 2*days)
		require.Less(t, kept, 3*days)
	}
}

// Refuse, of the first or of the later caller: after a crash the function does not run until an operator
// calls Resolve. The record is listed, with the session of the lost attempt.
func TestRefuseAndResolve(t *testing.T) {
	t.Parallel()
	refuse := idempotency.OnLost(idempotency.Refuse)
	for i, tt := range []struct {
		resolution idempotency.Resolution
		state      idempotency.State
	}{
		{idempotency.WasDone([]byte(`"found"`)), idempotency.Done},
		{idempotency.HasFailed("declined"), idempotency.Failed},
		{idempotency.NotDone(), idempotency.Released},
	} {
		t.Run(tt.state.String(), func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			var first, later []idempotency.Option
			if i == 0 {
				later = append(later, refuse)
			} else {
				first = append(first, refuse)
			}
			begin(t, a, key("1"), first...)
			begin(t, a, key("other"))
			require.ErrorIs(t, b.Resolve(ctxT(t), b.Ref(key("1")), tt.resolution), idempotency.ErrInProgress)
			require.ErrorIs(t, b.Delete(ctxT(t), b.Ref(key("1"))), idempotency.ErrInProgress)
			a.crash(t, f)
			var unknown *idempotency.UnknownError
			for range 2 {
				_, _, err := b.Begin(ctxT(t), key("1"), "payload", later...)
				require.ErrorIs(t, err, idempotency.ErrUnknown)
				require.ErrorAs(t, err, &unknown)
			}
			require.Equal(t, b.Ref(key("1")), unknown.Ref)
			require.Equal(t, a.sess.Owner(), unknown.Owner)

			var found []idempotency.Record
			for r, err := range b.List(ctxT(t), idempotency.Filter{Scope: new("tenant"), State: idempotency.Unknown}) {
				require.NoError(t, err)
				found = append(found, r)
			}
			require.Len(t, found, 2)
			seen := found[slices.IndexFunc(found, func(r idempotency.Record) bool { return r.Ref == unknown.Ref })]
			require.ErrorIs(t, b.Resolve(ctxT(t), unknown.Ref, tt.resolution, idempotency.OnlyRevision(seen.Revision-1)), idempotency.ErrConflict)
			require.ErrorIs(t, b.Resolve(ctxT(t), unknown.Ref, tt.resolution, nil), idempotency.ErrInvalid)
			require.NoError(t, b.Resolve(ctxT(t), unknown.Ref, tt.resolution, idempotency.OnlyRevision(seen.Revision)))
			require.ErrorIs(t, b.Delete(ctxT(t), unknown.Ref, idempotency.OnlyRevision(seen.Revision)), idempotency.ErrConflict, "it was resolved since")
			r, rec, err := b.Get(ctxT(t), unknown.Ref)
			require.NoError(t, err)
			require.Equal(t, tt.state, r.State)
			require.Equal(t, b.sess.Owner(), r.Resolved)
			err = b.Resolve(ctxT(t), unknown.Ref, tt.resolution)
			require.ErrorIs(t, err, idempotency.ErrConflict)
			require.ErrorContains(t, err, ": conflict: the request is ")

			res, err := idempotency.Do(ctxT(t), b.Store, key("1"), "payload", func(context.Context, *idempotency.Attempt) (string, error) {
				return "run", nil
			}, later...)
			switch tt.state {
			case idempotency.Done:
				require.NoError(t, err)
				require.Equal(t, "found", res.Value)
				require.NotNil(t, rec)
			case idempotency.Failed:
				require.ErrorIs(t, err, idempotency.ErrFailed)
				require.ErrorContains(t, err, "declined")
			default:
				require.NoError(t, err)
				require.Equal(t, "run", res.Value)
				require.Equal(t, 2, res.Attempt)
			}
		})
	}
}

// S11: the function has returned, etcd cannot be reached, the session is lost, another takes
// over. The first one's outcome is not recorded, and its caller got ErrNotRecorded.
// No more can be promised.
func TestTrapS11ReturnedAndLost(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	inj := a.client.Inject(embedtest.Fault{Method: "Txn", Match: isCommit, Do: embedtest.FailWith, Times: -1})
	at := begin(t, a, key("1"))
	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, at.Commit(short, []byte("a")), idempotency.ErrNotRecorded)
	rejected(t, b, key("1"))
	require.NoError(t, f.ExpireLease(ctxT(t), a.sess.Lease()))
	next := begin(t, b, key("1"))
	require.Equal(t, 2, next.Attempt())
	inj.Remove()
	require.Eventually(t, func() bool { return a.Stats().Pending == 0 }, soon, 5*time.Millisecond)
	require.EqualValues(t, 1, a.Stats().Fenced)
	require.NoError(t, next.Commit(ctxT(t), []byte("b")))
	require.Equal(t, "b", string(replayed(t, a, key("1")).Value))
}

// S11: a condition that is not met ends the commit; it is not repeated for ever.
func TestConflictWithoutACaller(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"none"), "!=", 0)})
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	err := at.Commit(gone, nil)
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.False(t, at.Certain(err))
	next := begin(t, b, key("1")) // waits until it is left as lost
	require.Equal(t, 2, next.Attempt())
	require.False(t, at.Certain(err), "nor when it has been refused")

	// In Do it is as an error of the function.
	_, err = idempotency.Do(ctxT(t), a.Store, key("2"), nil, func(_ context.Context, at *idempotency.Attempt) (int, error) {
		at.Attach([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(f.Root+"none"), "!=", 0)})
		return 1, nil
	})
	require.ErrorIs(t, err, idempotency.ErrConflict)
	at, _, err = b.Begin(ctxT(t), key("2"), nil)
	require.NoError(t, err)
	require.Equal(t, 2, at.Attempt())
}

// Steps with a recorded value do not run again in an attempt after a crash, an error or a panic.
func TestSteps(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	calls := map[string]int{}
	broken := errors.New("broken")
	work := func(stop string, crash func()) func(context.Context, *idempotency.Attempt) (string, error) {
		return func(_ context.Context, at *idempotency.Attempt) (string, error) {
			all := ""
			for _, name := range []string{"one", "two", "three"} {
				v, err := idempotency.Step(at, name, func(context.Context) (string, error) {
					calls[name]++
					if name == stop {
						crash()
						return "", broken
					}
					return fmt.Sprint(name, at.Attempt(), at.ChildKey(name)[:1]), nil
				})
				if err != nil {
					return "", err
				}
				all += v + " "
			}
			return all, nil
		}
	}
	_, err := idempotency.Do(ctxT(t), b.Store, key("1"), nil, work("two", func() {}))
	require.ErrorIs(t, err, broken)
	r, _, err := b.Get(ctxT(t), b.Ref(key("1")))
	require.NoError(t, err)
	require.Equal(t, idempotency.Released, r.State)
	_, err = idempotency.Do(ctxT(t), a.Store, key("1"), nil, work("three", func() { a.crash(t, f) }))
	require.Error(t, err)
	res, err := idempotency.Do(ctxT(t), c.Store, key("1"), nil, work("", nil))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"one": 1, "two": 2, "three": 2}, calls)
	require.Regexp(t, "^one1. two2. three3. $", res.Value)
	require.Equal(t, 3, res.Attempt)
	require.Empty(t, f.working())

	// Errors of steps themselves.
	at := begin(t, b, key("2"))
	_, err = idempotency.Step(at, "big", func(context.Context) ([]byte, error) { return make([]byte, 600<<10), nil })
	require.ErrorIs(t, err, idempotency.ErrTooLarge)
	_, err = idempotency.Step(at, "odd", func(context.Context) (func(), error) { return nil, nil })
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	v, err := idempotency.Step(at, "text", func(context.Context) (string, error) { return "x", nil })
	require.NoError(t, err)
	require.Equal(t, "x", v)
	require.NoError(t, at.Abandon(ctxT(t)))
	at = begin(t, b, key("2"))
	_, err = idempotency.Step(at, "text", func(context.Context) (int, error) { return 1, nil })
	require.ErrorIs(t, err, idempotency.ErrUnreadable)
	require.NoError(t, at.Commit(ctxT(t), nil))
	_, err = idempotency.Step(at, "late", func(context.Context) (int, error) { return 1, nil })
	require.ErrorIs(t, err, idempotency.ErrSettled)
}

// A step whose answer is lost, or that is sent twice, neither fences its own attempt nor counts
// twice.
func TestDoubtfulSteps(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]embedtest.Action{
		"answer lost": embedtest.DropResponse, "sent twice": embedtest.Duplicate,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := shared(t)
			a, b := f.instance(nil, nil), f.instance(nil, nil)
			at := begin(t, a, key("1"))
			inj := a.client.Inject(embedtest.Fault{Method: "Txn", Do: what})
			_, err := idempotency.Step(at, "one", func(context.Context) (int, error) { return 1, nil })
			require.Equal(t, 1, inj.Hits())
			require.NoError(t, err)
			_ = inj.Release()
			inj.Remove()
			require.NoError(t, at.Commit(ctxT(t), []byte("x")))
			require.Equal(t, "x", string(replayed(t, b, key("1")).Value))
			require.Empty(t, f.working())
		})
	}
}

// I08, I29: times in records are for people. Whatever they say, of days ago or to come,
// requests are replayed, in progress, taken over and kept as without.
func TestClocksInRecords(t *testing.T) {
	t.Parallel()
	times := regexp.MustCompile(`"(start|end)":\d+`)
	for _, off := range []time.Duration{-24 * time.Hour, time.Hour, 1000 * time.Hour} {
		f := shared(t)
		a, b := f.instance(nil, &idempotency.Options{CacheBytes: -1}), f.instance(nil, &idempotency.Options{CacheBytes: -1})
		require.NoError(t, begin(t, a, key("done")).Commit(ctxT(t), []byte("x")))
		require.NoError(t, begin(t, a, key("lost")).Abandon(ctxT(t)))
		for name, value := range f.Values("/idempotency/") {
			wrong := times.ReplaceAllString(value, fmt.Sprintf(`"$1":%d`, time.Now().Add(off).UnixMilli()))
			require.NotEqual(t, value, wrong)
			_, err := f.Client().Put(ctxT(t), name, wrong, clientv3.WithIgnoreLease())
			require.NoError(t, err)
		}
		require.Equal(t, "x", string(replayed(t, b, key("done")).Value))
		next := begin(t, b, key("lost"))
		require.Equal(t, 2, next.Attempt())
		rejected(t, a, key("lost"))
		require.NoError(t, next.Commit(ctxT(t), nil))
	}
}

// K4: a record that is deleted by hand frees its request at once. The attempt before is fenced, and so is its guard.
func TestRecordDeletedByHand(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	at := begin(t, a, key("1"))
	_, err := f.Client().Delete(ctxT(t), f.working()[0])
	require.NoError(t, err)
	next := begin(t, b, key("1"))
	require.Equal(t, 1, next.Attempt())
	require.Greater(t, next.Token(), at.Token())
	require.False(t, f.guarded(at))
	require.True(t, f.guarded(next))
	require.NoError(t, at.Err(), "nothing has said so yet")
	require.ErrorIs(t, at.Commit(ctxT(t), []byte("a")), idempotency.ErrFenced)
	require.NoError(t, next.Commit(ctxT(t), []byte("b")))
	require.Equal(t, "b", string(replayed(t, a, key("1")).Value))
}

// A Resolve that is refused leaves no lease: neither while an attempt is in progress, nor after another operator was
// faster.
func TestRefusedResolveLeavesNoLease(t *testing.T) {
	t.Parallel()
	f := own(t)
	service, fast, slow := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, nil)
	ref := service.Ref(key("1"))
	begin(t, service, key("1"))
	leases := func() int {
		resp, err := f.Client().Leases(ctxT(t))
		require.NoError(t, err)
		return len(resp.Leases)
	}
	slow.client.ResetRequests()
	require.ErrorIs(t, slow.Resolve(ctxT(t), ref, idempotency.NotDone()), idempotency.ErrInProgress)
	require.Zero(t, slow.client.Requests()["LeaseGrant"], "it refuses first")

	service.crash(t, f)
	var first error
	taken := slow.client.Inject(embedtest.Fault{Method: "LeaseGrant", Before: func() { first = fast.Resolve(ctxT(t), ref, idempotency.WasDone(nil)) }})
	require.ErrorIs(t, slow.Resolve(ctxT(t), ref, idempotency.NotDone()), idempotency.ErrConflict)
	require.Equal(t, 1, taken.Hits())
	require.NoError(t, first)
	require.NoError(t, fast.sess.Close(ctxT(t)))
	before := leases()
	require.NoError(t, slow.sess.Close(ctxT(t)))
	require.Equal(t, before-2, leases(), "that of the session, and that of the outcome")
}

// All attempts in progress end with their session, and an attempt that was settled before does not.
func TestAllAttemptsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	var attempts []*idempotency.Attempt
	for n := range 5 {
		attempts = append(attempts, begin(t, in, key(fmt.Sprint(n))))
	}
	for _, n := range []int{3, 1} {
		require.NoError(t, attempts[n].Commit(ctxT(t), []byte("done")))
	}
	require.NoError(t, f.ExpireLease(ctxT(t), in.sess.Lease()))
	for n, a := range attempts {
		closed(t, a.Context().Done(), "the end of the attempt")
		want := idempotency.ErrLost
		if n == 1 || n == 3 {
			want = idempotency.ErrSettled
		}
		require.ErrorIs(t, context.Cause(a.Context()), want)
	}
}
