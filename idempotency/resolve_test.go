package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// What an operator can do about a request of unknown outcome, and what not (U1 to U6 in internal/proof/tested-failures.md).

func (in instance) look(t testing.TB, k idempotency.Key) idempotency.Record {
	t.Helper()
	r, _, err := in.Get(ctxT(t), in.Ref(k))
	require.NoError(t, err)
	return r
}

// An operator recognizes the request by its note: in Get, List, the error and the log, also after a takeover, and
// whatever the Codec. The text of the error, which a client may get, does not have it.
func TestNote(t *testing.T) {
	t.Parallel()
	f := shared(t)
	core, lines := observer.New(zapcore.WarnLevel)
	codec := &idempotency.Options{Codec: reverse("one")}
	a, b := f.instance(nil, codec), f.instance(&concurrency.SessionOptions{Logger: zap.New(core)}, codec)
	at := begin(t, a, key("1"), idempotency.Note("order 7\nof Ada"))
	require.Equal(t, a.Ref(key("1")), at.Ref())
	require.Equal(t, "order 7 of Ada", b.look(t, key("1")).Note)
	_, err := idempotency.Step(at, "charge", func(context.Context) (string, error) { return "ch_1", nil })
	require.NoError(t, err)
	require.NoError(t, at.SetNote("order 7, charge ch_1"))
	require.Equal(t, []string{"charge"}, b.look(t, key("1")).Steps, "as does what was certainly done")
	for r, err := range b.List(ctxT(t), idempotency.Filter{}) {
		require.NoError(t, err)
		require.Equal(t, "order 7, charge ch_1", r.Note)
		require.Contains(t, r.String(), `note "order 7, charge ch_1"`)
	}
	a.crash(t, f)
	require.Error(t, at.SetNote("late"))
	require.Equal(t, []string{"charge"}, b.look(t, key("1")).Steps)

	_, _, err = b.Begin(ctxT(t), key("1"), "payload", idempotency.OnLost(idempotency.Refuse))
	var unknown *idempotency.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "order 7, charge ch_1", unknown.Note)
	require.NotContains(t, err.Error(), "charge")
	again := begin(t, b, key("1"), idempotency.OnLost(idempotency.TakeOver))
	require.Len(t, lines.All(), 2)
	for _, line := range lines.All() {
		require.Equal(t, "order 7, charge ch_1", line.ContextMap()["note"], line.Message)
	}
	require.Equal(t, "order 7, charge ch_1", b.look(t, key("1")).Note, "the next attempt has it too")
	require.NoError(t, again.Commit(ctxT(t), []byte("x")))
	require.Equal(t, "order 7, charge ch_1", b.look(t, key("1")).Note)
	require.ErrorIs(t, again.SetNote("late"), idempotency.ErrSettled)
}

// What a process says of an attempt of its own has the note as the work has set it, and the reference (U11): the
// operator who reads that an outcome is unknown or not recorded looks for a payment.
func TestNoteOfAnAttemptInLogs(t *testing.T) {
	t.Parallel()
	f := shared(t)
	core, lines := observer.New(zapcore.WarnLevel)
	in := f.instance(&concurrency.SessionOptions{Logger: zap.New(core)}, &idempotency.Options{OnLost: idempotency.Refuse})
	note := func(id string) *idempotency.Attempt {
		at := begin(t, in, key(id), idempotency.Note("order 7"))
		require.NoError(t, at.SetNote("order 7, charge "+id))
		return at
	}
	require.NoError(t, note("abandoned").Abandon(ctxT(t)))

	large := note("large")
	inj := in.client.Inject(embedtest.Fault{Method: "Txn", Times: 1, Do: embedtest.FailWith, Err: rpctypes.ErrGRPCRequestTooLarge})
	require.NoError(t, large.Commit(ctxT(t), []byte("x")))
	inj.Remove()

	fenced := note("fenced")
	for _, name := range f.Keys(string(in.Ref(key("fenced")))) {
		_, err := f.Client().Delete(ctxT(t), name)
		require.NoError(t, err)
	}
	ended, cancel := context.WithCancel(ctxT(t))
	cancel()
	require.ErrorIs(t, fenced.Commit(ended, []byte("x")), idempotency.ErrNotRecorded)
	require.Eventually(t, func() bool { return lines.Len() == 3 }, soon, soon/1000)
	for i, id := range []string{"abandoned", "large", "fenced"} {
		said := lines.All()[i]
		require.Equal(t, []any{"order 7, charge " + id, string(in.Ref(key(id)))}, []any{said.ContextMap()["note"], said.ContextMap()["ref"]}, said.Message)
	}
}

// A record says which entry its latest attempt has: that one's outcome is recorded, and what it replays is what an
// operator may record (D22). The entry of the first attempt stayed after a takeover by another one, so that its form was
// asked for.
func TestVia(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	begin(t, a, key("own"))
	begin(t, a, key("http"), idempotency.Via("http"))
	_, err := idempotency.Do(ctxT(t), a.Store, key("do"), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 1, nil }, idempotency.Via("http"))
	require.NoError(t, err)
	for id, via := range map[string]string{"own": "", "http": "http", "do": "do"} {
		require.Equal(t, via, a.look(t, key(id)).Via)
	}
	a.crash(t, f)
	for _, via := range []string{"", "grpc", "http"} {
		next := begin(t, b, key("http"), idempotency.Via(via))
		require.Equal(t, via, b.look(t, key("http")).Via)
		require.NoError(t, next.Abandon(ctxT(t)))
		require.Equal(t, via, b.look(t, key("http")).Via)
	}
	_, _, err = b.Begin(ctxT(t), key("2"), nil, idempotency.Via(string(make([]byte, 65))))
	require.ErrorIs(t, err, idempotency.ErrInvalid)
}

// A result that no duplicate could get is refused, and changes nothing: one in another form than the entry's, and one
// without the Codec of the services.
func TestResolveTakesWhatCanBeReplayed(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	coded := f.instance(nil, &idempotency.Options{Codec: reverse("one")})
	message := forms.Call{Word: forms.Omitted}.Encode()
	response := []byte("idemhttp 1 201 -\n\n")
	results := map[string][]byte{"http": response, "grpc": message, "": []byte("any")}
	for via := range results {
		begin(t, a, key(via+"!"), idempotency.Via(via))
		begin(t, a, key(via+"?"), idempotency.Via(via))
		begin(t, coded, key(via+"coded"), idempotency.Via(via))
	}
	a.crash(t, f)
	coded.crash(t, f)
	for via, good := range results {
		if via != "" {
			require.ErrorIs(t, b.Resolve(ctxT(t), b.Ref(key(via+"!")), idempotency.WasDone([]byte(`{"charge":7}`))), idempotency.ErrInvalid)
			require.Equal(t, idempotency.Unknown, b.look(t, key(via+"!")).State)
		}
		require.NoError(t, b.Resolve(ctxT(t), b.Ref(key(via+"!")), idempotency.WasDone(good)))
		require.Equal(t, good, replayed(t, b, key(via+"!")).Value)
		require.NoError(t, b.Resolve(ctxT(t), b.Ref(key(via+"?")), idempotency.HasFailed("declined")), "a failure has no form")

		ref := b.Ref(key(via + "coded"))
		err := b.Resolve(ctxT(t), ref, idempotency.WasDone(good))
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "Options.Codec")
		require.NoError(t, b.Resolve(ctxT(t), ref, idempotency.HasFailed("declined")))
		reader := f.instance(nil, &idempotency.Options{Codec: reverse("one")})
		require.Equal(t, "declined", replayed(t, reader, key(via+"coded")).Failure)
		require.NoError(t, reader.Resolve(ctxT(t), ref, idempotency.WasDone(good), idempotency.OnlyRevision(b.look(t, key(via+"coded")).Revision)))
		require.Equal(t, good, replayed(t, reader, key(via+"coded")).Value)
	}
}

// An operator's store whose Codec is not that of the services records no result (U7): each duplicate was ErrUnreadable.
// One that knows theirs writes with it, also if its own is another one, as during the change of a key (V24).
func TestResolveWithAnotherCodec(t *testing.T) {
	t.Parallel()
	f := shared(t)
	one, two := reverse("one"), reverse("two")
	for id, begun := range map[string]*idempotency.Options{"coded": {Codec: one}, "plain": nil} {
		services := f.instance(nil, begun)
		begin(t, services, key(id))
		services.crash(t, f)
		operator := f.instance(nil, &idempotency.Options{Codec: two})
		err := operator.Resolve(ctxT(t), operator.Ref(key(id)), idempotency.WasDone([]byte("x")))
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "Options.OldCodecs")
		require.Equal(t, idempotency.Unknown, operator.look(t, key(id)).State)

		next := f.instance(nil, &idempotency.Options{Codec: two, OldCodecs: []idempotency.Codec{one, idempotency.Plain}})
		require.NoError(t, next.Resolve(ctxT(t), next.Ref(key(id)), idempotency.WasDone([]byte("x"))))
		require.Equal(t, "x", string(replayed(t, next, key(id)).Value))
		require.Equal(t, "x", string(replayed(t, f.instance(nil, begun), key(id)).Value), "and the services read it")
		require.NoError(t, next.Resolve(ctxT(t), next.Ref(key(id)), idempotency.WasDone([]byte("y")), idempotency.OnlyRevision(next.look(t, key(id)).Revision)))
		require.Equal(t, "y", string(replayed(t, f.instance(nil, begun), key(id)).Value), "a correction, too")
	}
}

// While the process of a lost attempt lives, nothing lets the request run again: neither NotDone nor Delete, unless the
// operator says that this does not count. Once it has ended, both do. What was done may be recorded at any time.
func TestNotDoneWaitsForTheProcess(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, &idempotency.Options{OnLost: idempotency.Refuse}), f.instance(nil, nil)
	for _, id := range []string{"not done", "deleted", "forced", "forced to be deleted", "done"} {
		require.NoError(t, begin(t, a, key(id)).Abandon(ctxT(t)))
	}
	ref := func(id string) idempotency.Ref { return b.Ref(key(id)) }
	before := b.look(t, key("not done"))
	require.True(t, before.Alive)
	require.Contains(t, before.String(), "whose process lives")
	for _, err := range []error{
		b.Resolve(ctxT(t), ref("not done"), idempotency.NotDone()),
		b.Resolve(ctxT(t), ref("not done"), idempotency.NotDone(), idempotency.OnlyRevision(before.Revision)),
		b.Delete(ctxT(t), ref("deleted")),
	} {
		require.ErrorIs(t, err, idempotency.ErrAlive)
		require.ErrorContains(t, err, "EvenIfAlive")
		require.ErrorContains(t, err, a.sess.Owner())
	}
	require.Equal(t, before, b.look(t, key("not done")))
	require.NoError(t, b.Resolve(ctxT(t), ref("done"), idempotency.WasDone([]byte("x"))))
	require.True(t, b.look(t, key("done")).Alive)
	require.ErrorIs(t, b.Delete(ctxT(t), ref("done")), idempotency.ErrAlive, "nor by the way of an outcome (V29)")
	require.NoError(t, b.Resolve(ctxT(t), ref("forced"), idempotency.NotDone(), idempotency.EvenIfAlive()))
	require.NoError(t, b.Delete(ctxT(t), ref("forced to be deleted"), idempotency.EvenIfAlive()))

	a.crash(t, f)
	for r, err := range b.List(ctxT(t), idempotency.Filter{}) {
		require.NoError(t, err)
		require.False(t, r.Alive, r.State)
	}
	require.NoError(t, b.Resolve(ctxT(t), ref("not done"), idempotency.NotDone()))
	require.NoError(t, b.Delete(ctxT(t), ref("deleted")))
	require.NoError(t, b.Delete(ctxT(t), ref("done")))
}

// D19: a process was cut off for longer than its TTL, so the attempt is lost. It has another lease now, and its function
// still runs: nothing lets the request run beside it. The absence of the attempt's own lease was taken for the end of
// the process. A process that was started with the same name is another one.
func TestNotDoneWaitsForAProcessThatWasCutOff(t *testing.T) {
	t.Parallel()
	f := shared(t)
	refuse := &idempotency.Options{OnLost: idempotency.Refuse}
	a, b := f.instance(&concurrency.SessionOptions{Owner: "pod-0"}, refuse), f.instance(nil, nil)
	for _, id := range []string{"1", "2", "3"} {
		begin(t, a, key(id))
	}
	ref := func(id string) idempotency.Ref { return b.Ref(key(id)) }
	first := a.sess.Lease()
	require.NoError(t, f.ExpireLease(ctxT(t), first))
	require.Eventually(t, func() bool { now := a.sess.Lease(); return now != 0 && now != first }, soon, time.Millisecond)

	require.True(t, b.look(t, key("1")).Alive)
	for _, filter := range []idempotency.Filter{{}, {Refs: []idempotency.Ref{ref("1"), ref("2")}}} {
		for r, err := range b.List(ctxT(t), filter) {
			require.NoError(t, err)
			require.Equal(t, []any{idempotency.Unknown, true}, []any{r.State, r.Alive})
		}
	}
	for _, err := range []error{b.Resolve(ctxT(t), ref("1"), idempotency.NotDone()), b.Delete(ctxT(t), ref("1"))} {
		require.ErrorIs(t, err, idempotency.ErrAlive)
		require.ErrorContains(t, err, "EvenIfAlive")
		require.ErrorContains(t, err, `the session of attempt 1, "pod-0", was lost`)
	}
	require.NoError(t, b.Resolve(ctxT(t), ref("2"), idempotency.WasDone([]byte("x"))))
	require.NoError(t, b.Resolve(ctxT(t), ref("3"), idempotency.NotDone(), idempotency.EvenIfAlive()))

	a.crash(t, f)
	f.instance(&concurrency.SessionOptions{Owner: "pod-0"}, refuse)
	require.False(t, b.look(t, key("1")).Alive)
	require.NoError(t, b.Resolve(ctxT(t), ref("1"), idempotency.NotDone()))
}

// An operator's outcome is corrected by an operator who has looked at it, between done and failed only, and both are in
// the record. A function's outcome is not corrected.
func TestCorrection(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b, c := f.instance(nil, nil), f.instance(nil, nil), f.instance(nil, &idempotency.Options{CacheBytes: -1})
	cached, kept := f.instance(nil, &idempotency.Options{CacheFor: 50 * time.Millisecond}), f.instance(nil, &idempotency.Options{CacheFor: time.Hour})
	done, failed, not := idempotency.WasDone([]byte("x")), idempotency.HasFailed("declined"), idempotency.NotDone()
	begin(t, a, key("1"))
	begin(t, a, key("2"))
	require.NoError(t, begin(t, b, key("function's")).Commit(ctxT(t), []byte("y")))
	a.crash(t, f)
	resolve := func(k idempotency.Key, what idempotency.Resolution, opts ...idempotency.ChangeOption) error {
		return b.Resolve(ctxT(t), b.Ref(k), what, opts...)
	}
	now := func(k idempotency.Key) idempotency.ChangeOption {
		return idempotency.OnlyRevision(b.look(t, k).Revision)
	}

	require.ErrorIs(t, resolve(key("function's"), failed, now(key("function's"))), idempotency.ErrConflict)
	require.NoError(t, resolve(key("1"), done))
	first := b.look(t, key("1"))
	require.Empty(t, first.Earlier)
	err := resolve(key("1"), failed)
	require.ErrorIs(t, err, idempotency.ErrConflict)
	require.ErrorContains(t, err, "OnlyRevision")
	err = resolve(key("1"), not, now(key("1")))
	require.ErrorIs(t, err, idempotency.ErrConflict)
	require.ErrorContains(t, err, "NotDone")
	require.Equal(t, first, b.look(t, key("1")))
	for _, in := range []instance{c, cached, kept} {
		require.Equal(t, "x", string(replayed(t, in, key("1")).Value))
	}
	require.NoError(t, resolve(key("1"), failed, now(key("1"))))
	require.Equal(t, "x", string(replayed(t, kept, key("1")).Value), "for CacheFor another process replays what was corrected")
	require.Eventually(t, func() bool { return replayed(t, cached, key("1")).Failed }, soon, time.Millisecond, "and no longer")
	require.Eventually(t, func() bool { return replayed(t, c, key("1")).Failed }, soon, time.Millisecond, "a member of several may lag behind")
	require.True(t, replayed(t, b, key("1")).Failed, "nor does the process of the correction replay what it has corrected")
	require.NoError(t, resolve(key("1"), done, now(key("1"))))
	require.Eventually(t, func() bool { return string(replayed(t, c, key("1")).Value) == "x" }, soon, time.Millisecond)
	last := b.look(t, key("1"))
	require.Len(t, last.Earlier, 2)
	require.Equal(t, idempotency.EarlierResolution{State: idempotency.Done, By: b.sess.Owner(), At: first.Ended}, last.Earlier[0])
	require.Equal(t, idempotency.Failed, last.Earlier[1].State)
	require.Equal(t, "declined", last.Earlier[1].Failure)

	require.NoError(t, resolve(key("2"), not))
	require.ErrorIs(t, resolve(key("2"), done), idempotency.ErrConflict)
	require.NoError(t, resolve(key("2"), done, now(key("2"))), "no other attempt has begun, so nothing was done twice")
	require.Eventually(t, func() bool { return string(replayed(t, c, key("2")).Value) == "x" }, soon, time.Millisecond)
}

// What an operator has said is in the record of the attempt that follows, and nothing takes that attempt's outcome for
// an operator's.
func TestAttemptAfterNotDone(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	begin(t, a, key("1"))
	a.crash(t, f)
	require.NoError(t, b.Resolve(ctxT(t), b.Ref(key("1")), idempotency.NotDone()))
	released := b.look(t, key("1"))
	require.NoError(t, begin(t, b, key("1")).Commit(ctxT(t), []byte("x")))
	r := b.look(t, key("1"))
	require.Equal(t, []idempotency.EarlierResolution{{State: idempotency.Released, By: b.sess.Owner(), At: released.Ended}}, r.Earlier)
	require.Empty(t, r.Resolved)
	require.ErrorIs(t, b.Resolve(ctxT(t), b.Ref(key("1")), idempotency.HasFailed("x"), idempotency.OnlyRevision(r.Revision)), idempotency.ErrConflict)
}

type paidReceipt struct {
	Charge int `json:"charge"`
}

// V32: JSON of an operator's for another type is refused when it is replayed, by the name of the member; it was a zero
// value, as if nothing had been charged. A function's own result may have members that another release does not know.
func TestResultOfAnotherType(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, &idempotency.Options{OnLost: idempotency.Refuse, CacheBytes: -1})
	do := func(id string) (paidReceipt, error) {
		res, err := idempotency.Do(ctxT(t), in.Store, key(id), nil, func(context.Context, *idempotency.Attempt) (paidReceipt, error) {
			return paidReceipt{}, errors.New("the provider is silent")
		})
		return res.Value, err
	}
	_, err := do("1")
	require.Error(t, err)
	require.NoError(t, in.Resolve(ctxT(t), in.Ref(key("1")), idempotency.WasDone([]byte(`{"payment":7}`))))
	_, err = do("1")
	require.ErrorIs(t, err, idempotency.ErrUnreadable)
	require.ErrorContains(t, err, "payment")
	require.ErrorContains(t, err, "Store.Resolve with OnlyRevision")
	require.NoError(t, in.Resolve(ctxT(t), in.Ref(key("1")), idempotency.WasDone([]byte(`{"charge":7}`)), idempotency.OnlyRevision(in.look(t, key("1")).Revision)))
	got, err := do("1")
	require.NoError(t, err)
	require.Equal(t, paidReceipt{Charge: 7}, got)

	_, err = idempotency.Do(ctxT(t), in.Store, key("2"), nil, func(context.Context, *idempotency.Attempt) (map[string]int, error) {
		return map[string]int{"charge": 7, "later": 1}, nil
	})
	require.NoError(t, err)
	got, err = do("2")
	require.NoError(t, err)
	require.Equal(t, paidReceipt{Charge: 7}, got, "another release has recorded it")
}
