package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A nil function is refused before anything is claimed or recorded.
func TestNilFunction(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	_, err := idempotency.Do[int](ctxT(t), a.Store, key("1"), nil, nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.Empty(t, f.Values("/idempotency/"))
	at := begin(t, a, key("1"))
	_, err = idempotency.Step[int](at, "x", nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorIs(t, at.Run(ctxT(t), nil), idempotency.ErrInvalid)
	require.NoError(t, at.Err())
	require.NoError(t, at.Commit(ctxT(t), nil))
}

// I07, I27: what is out of range is refused before anything is written, zero and below
// are never taken for "no bound", and no options at all work.
func TestInvalid(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	_, err := idempotency.NewStore(nil, "x", nil)
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	for name, o := range map[string]*idempotency.Options{
		"Retain":         {Retain: time.Millisecond},
		"Retain below":   {Retain: -time.Hour},
		"Retain above":   {Retain: 400 * 24 * time.Hour},
		"RetainUnknown":  {Retain: time.Hour, RetainUnknown: time.Minute},
		"MaxExecution":   {MaxExecution: -1},
		"MaxExecution 1": {MaxExecution: time.Microsecond},
		"MaxResult":      {MaxResult: 1 << 30},
		"MaxResult -1":   {MaxResult: -1},
		"OnLost":         {OnLost: 7},
		"OnPanic":        {OnPanic: -1},
		"CacheFor":       {CacheFor: -1},
		"NearQuota":      {NearQuota: -1},
		"Quota":          {Quota: -1},
		"Codec":          {Codec: reverse("")},
	} {
		_, err := idempotency.NewStore(a.sess, "x", o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, name)
	}
	for _, name := range []string{"", "a/b", "\x00", strings.Repeat("x", 256)} {
		_, err := idempotency.NewStore(a.sess, name, nil)
		require.ErrorIs(t, err, idempotency.ErrInvalid, name)
	}
	before := f.Values("/idempotency/")
	long := strings.Repeat("x", 256)
	for _, k := range []idempotency.Key{
		{}, {Scope: "t", Op: "o"}, {Scope: "t", ID: "i"}, {Op: "o", ID: "i"}, {Scope: long, Op: "o", ID: "i"}, {Scope: "t", Op: long, ID: "i"}, {Scope: "t", Op: "o", ID: long},
	} {
		_, _, err := a.Begin(ctxT(t), k, nil)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		if err != nil && k.ID != "" {
			require.NotContains(t, err.Error(), "\""+k.ID[:1]+"\"", "the ID is a secret")
		}
	}
	for i, o := range []idempotency.Option{
		nil, idempotency.Retain(0), idempotency.Retain(-time.Hour), idempotency.Retain(100 * 24 * time.Hour),
		idempotency.MaxExecution(0), idempotency.MaxExecution(-time.Second), idempotency.OnLost(9), idempotency.OnPanic(9), idempotency.Wait(-time.Second),
	} {
		_, _, err := a.Begin(ctxT(t), key("1"), nil, o)
		require.ErrorIs(t, err, idempotency.ErrInvalid, i)
	}
	require.Equal(t, before, f.Values("/idempotency/"))
	for _, ref := range []idempotency.Ref{"", "x", "../x", idempotency.Ref(strings.Repeat("x", 60)), a.Ref(key("1")) + "x"} {
		_, _, err := a.Get(ctxT(t), ref)
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorIs(t, a.Delete(ctxT(t), ref), idempotency.ErrInvalid)
		require.ErrorIs(t, a.Resolve(ctxT(t), ref, idempotency.NotDone()), idempotency.ErrInvalid)
	}
	require.ErrorIs(t, a.Resolve(ctxT(t), a.Ref(key("1")), idempotency.Resolution{}), idempotency.ErrInvalid)
	_, _, err = a.Get(ctxT(t), a.Ref(key("1")))
	require.ErrorIs(t, err, idempotency.ErrNotFound)

	// Wait(0) does not wait, and a ctx that has ended begins nothing.
	at := begin(t, a, key("1"))
	_, _, err = a.Begin(ctxT(t), key("1"), "payload", idempotency.Wait(0))
	require.ErrorIs(t, err, idempotency.ErrInProgress)
	require.NoError(t, at.Release(ctxT(t)))
	ended, cancel := context.WithCancel(ctxT(t))
	cancel()
	_, _, err = a.Begin(ended, key("1"), "payload")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, f.Keys("/record/"))

	single, err := idempotency.NewStore(a.sess, "single", &idempotency.Options{SingleTenant: true})
	require.NoError(t, err)
	at, _, err = single.Begin(ctxT(t), idempotency.Key{Op: "\xff\x00", ID: "\xff/\n"}, nil)
	require.NoError(t, err)
	require.NoError(t, at.Commit(ctxT(t), nil))
	r, _, err := single.Get(ctxT(t), single.Ref(at.Key()))
	require.NoError(t, err)
	require.Equal(t, idempotency.Done, r.State)
}

// reverse is a codec that turns bytes round, and puts first what they belong to.
type reverse string

func (r reverse) Name() string { return string(r) }
func (reverse) Encode(b, about []byte) ([]byte, error) {
	if strings.Contains(string(b), "poison") {
		return nil, errors.New("poison")
	}
	out := append([]byte(nil), about...)
	for i := len(b) - 1; i >= 0; i-- {
		out = append(out, b[i])
	}
	return out, nil
}

func (reverse) Decode(b, about []byte) ([]byte, error) {
	b, ok := bytes.CutPrefix(b, about)
	if !ok {
		return nil, errors.New("it belongs to another")
	}
	out := make([]byte, 0, len(b))
	for i := len(b) - 1; i >= 0; i-- {
		out = append(out, b[i])
	}
	return out, nil
}

// Results and recovery points pass through the codec, are bound to their request, and are read by the
// codec that wrote them.
func TestCodec(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, &idempotency.Options{Codec: reverse("one")})
	next := f.instance(nil, &idempotency.Options{Codec: reverse("two"), OldCodecs: []idempotency.Codec{reverse("one")}})
	without := f.instance(nil, nil)
	at := begin(t, a, key("1"))
	_, err := idempotency.Step(at, "s", func(context.Context) (string, error) { return "secret", nil })
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(f.Values("/idempotency/")), "secret")
	require.NoError(t, at.Abandon(ctxT(t)))
	at = begin(t, next, key("1"))
	v, err := idempotency.Step(at, "s", func(context.Context) (string, error) { return "again", nil })
	require.NoError(t, err)
	require.Equal(t, "secret", v)
	require.NoError(t, at.Commit(ctxT(t), []byte("result")))
	require.NotContains(t, fmt.Sprint(f.Values("/idempotency/")), "result\x22")
	require.Equal(t, "result", string(replayed(t, next, key("1")).Value))
	for _, in := range []instance{a, without} {
		_, _, err = in.Begin(ctxT(t), key("1"), "payload")
		require.ErrorIs(t, err, idempotency.ErrUnreadable)
	}

	// Shown at another key, it is refused; and one without a codec, too.
	require.NoError(t, begin(t, next, key("2")).Commit(ctxT(t), []byte("other")))
	require.NoError(t, begin(t, without, key("3")).Commit(ctxT(t), []byte("bare")))
	var one, two string
	for name := range f.Values("/idempotency/") {
		if strings.HasSuffix(name, string(a.Ref(key("1")))) {
			one = name
		} else if strings.HasSuffix(name, string(a.Ref(key("2")))) {
			two = name
		}
	}
	_, err = f.Client().Put(ctxT(t), two, f.Values("/idempotency/")[one])
	require.NoError(t, err)
	fresh := f.instance(nil, &idempotency.Options{Codec: reverse("two")})
	_, _, err = fresh.Begin(ctxT(t), key("2"), "payload")
	require.ErrorIs(t, err, idempotency.ErrUnreadable)
	_, _, err = fresh.Begin(ctxT(t), key("3"), "payload")
	require.ErrorIs(t, err, idempotency.ErrUnreadable)
	lenient := f.instance(nil, &idempotency.Options{Codec: reverse("two"), OldCodecs: []idempotency.Codec{idempotency.Plain}})
	require.Equal(t, "bare", string(replayed(t, lenient, key("3")).Value))

	// One that fails costs the result, and no second execution.
	require.NoError(t, begin(t, a, key("4")).Commit(ctxT(t), []byte("poison")))
	require.True(t, replayed(t, next, key("4")).Omitted)
}

// All records are listed, page by page, by scope and state.
func TestListAndDelete(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a, b := f.instance(nil, nil), f.instance(nil, nil)
	const many = 450
	for n := range many {
		k := idempotency.Key{Scope: fmt.Sprint("tenant ", n%2), Op: "pay", ID: fmt.Sprint(n)}
		at := begin(t, a, k)
		switch n % 5 {
		case 0:
			require.NoError(t, at.Commit(ctxT(t), []byte("x")))
		case 1:
			require.NoError(t, at.Fail(ctxT(t), "broken", nil))
		case 2:
			require.NoError(t, at.Abandon(ctxT(t)))
		default: // continues
		}
	}
	count := func(filter idempotency.Filter) map[idempotency.State]int {
		states, seen := map[idempotency.State]int{}, map[idempotency.Ref]bool{}
		for r, err := range b.List(ctxT(t), filter) {
			require.NoError(t, err)
			require.False(t, seen[r.Ref])
			seen[r.Ref] = true
			states[r.State]++
		}
		return states
	}
	require.Equal(t, map[idempotency.State]int{idempotency.Done: 90, idempotency.Failed: 90, idempotency.Unknown: 90, idempotency.InProgress: 180}, count(idempotency.Filter{}))
	require.Equal(t, map[idempotency.State]int{idempotency.Done: 45, idempotency.Failed: 45, idempotency.Unknown: 45, idempotency.InProgress: 90}, count(idempotency.Filter{Scope: new("tenant 1")}))
	require.Equal(t, map[idempotency.State]int{idempotency.Unknown: 90}, count(idempotency.Filter{State: idempotency.Unknown}))
	require.Empty(t, count(idempotency.Filter{Scope: new("tenant")}))
	n, err := b.CountScope(ctxT(t), "tenant 1")
	require.NoError(t, err)
	require.EqualValues(t, 225, n)

	for r, err := range b.List(ctxT(t), idempotency.Filter{}) { // while it is listed
		require.NoError(t, err)
		err := b.Delete(ctxT(t), r.Ref, idempotency.EvenIfAlive())
		if r.State == idempotency.InProgress {
			require.ErrorIs(t, err, idempotency.ErrInProgress)
		} else {
			require.NoError(t, err)
		}
	}
	require.Equal(t, map[idempotency.State]int{idempotency.InProgress: 180}, count(idempotency.Filter{}))
	for r, err := range b.List(ctxT(t), idempotency.Filter{}) { // and not to the end
		require.NoError(t, err)
		require.Equal(t, a.sess.Owner(), r.Owner)
		require.Equal(t, "pay", r.Op)
		break
	}
}

// While etcd is near its quota no request begins, and replays continue.
func TestFull(t *testing.T) {
	t.Parallel()
	f := own(t)
	a, b := f.instance(nil, nil), f.instance(nil, &idempotency.Options{NearQuota: 1e-9})
	require.NoError(t, begin(t, a, key("1")).Commit(ctxT(t), []byte("x")))
	require.Eventually(t, func() bool {
		at, _, err := b.Begin(ctxT(t), key("2"), "payload")
		if err == nil {
			require.NoError(t, at.Release(ctxT(t)))
		}
		return errors.Is(err, idempotency.ErrNearQuota)
	}, soon, 5*time.Millisecond)
	require.Equal(t, "x", string(replayed(t, b, key("1")).Value))
	require.NoError(t, begin(t, a, key("2")).Commit(ctxT(t), nil))
}
