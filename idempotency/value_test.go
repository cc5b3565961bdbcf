package idempotency_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math/big"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

type (
	shape  interface{ Area() int }
	square struct{ Side int }
	drawn  struct{ Shape shape }
	broken struct{ Err error }
	mute   struct{ ID string }
	hiding struct {
		ID     string
		amount int
	}
	charged struct {
		time.Time
		Cents int
	}
	named struct {
		*square `json:"square"`
	}
	link    struct{ Next *link }
	odd     struct{ N int }
	blowing struct{}
)

func (s square) Area() int                  { return s.Side * s.Side }
func (mute) MarshalJSON() ([]byte, error)   { return []byte(`"x"`), nil }
func (o odd) MarshalJSON() ([]byte, error)  { return json.Marshal(o.N) }
func (o *odd) UnmarshalJSON(b []byte) error { o.N = len(b); return nil }
func (blowing) MarshalJSON() ([]byte, error) {
	panic("boom")
}
func (*blowing) UnmarshalJSON([]byte) error { return nil }

// refusedType does a request whose result's type cannot be replayed, and makes a step of it.
func refusedType[T any](t *testing.T, in instance, id, part string, v T) {
	t.Helper()
	ran := false
	_, err := idempotency.Do(ctxT(t), in.Store, key(id), nil, func(context.Context, *idempotency.Attempt) (T, error) {
		ran = true
		return v, nil
	})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, part)
	_, err = idempotency.Step(begin(t, in, key(id)), "step", func(context.Context) (T, error) {
		ran = true
		return v, nil
	})
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, part)
	require.False(t, ran, "the function has run")
}

// A result that no duplicate could read is refused before the function runs, and nothing is claimed
// (D1 in internal/proof/tested-failures.md).
func TestResultTypesThatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	refusedType[shape](t, in, "interface", "shape is an interface", square{2})
	refusedType(t, in, "field", "drawn.Shape", drawn{square{2}})
	refusedType(t, in, "error", "broken.Err", broken{errors.New("declined")})
	refusedType(t, in, "marshal", "UnmarshalJSON", mute{"x"})
	refusedType(t, in, "hidden", "hiding.amount is not exported", &hiding{"r1", 100})
	refusedType(t, in, "embedded", "Cents", charged{time.Now(), 5})
	refusedType(t, in, "channel", "chan int", make(chan int))
	refusedType(t, in, "named", "embedded pointer", named{&square{2}}) // D13: each duplicate panicked
}

// refusedValue does a request whose value JSON would change. It is done, and not done again.
func refusedValue[T any](t *testing.T, in instance, part string, v T) {
	t.Helper()
	k, runs := key(t.Name()+strconv.Quote(part)), 0
	do := func() (idempotency.Result[T], error) {
		return idempotency.Do(ctxT(t), in.Store, k, nil, func(context.Context, *idempotency.Attempt) (T, error) {
			runs++
			return v, nil
		}, idempotency.Wait(0))
	}
	res, err := do()
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, part)
	require.Equal(t, v, res.Value)
	_, err = do()
	require.ErrorIs(t, err, idempotency.ErrOmitted)
	require.Equal(t, 1, runs)
	a := begin(t, in, key(k.ID+"step"))
	got, err := idempotency.Step(a, "step", func(context.Context) (T, error) { return v, nil })
	require.ErrorIs(t, err, idempotency.ErrInvalid)
	require.ErrorContains(t, err, part)
	require.Equal(t, v, got)
	require.NoError(t, a.Release(ctxT(t)))
}

// D2: a value that would come back changed is refused when it is recorded, with the place of the change.
func TestValuesThatJSONChanges(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	refusedValue(t, in, `".order.id"`, map[string]any{"order": map[string]any{"id": int64(616581622363398142)}})
	refusedValue(t, in, "UTF-8", struct{ Name string }{"\xff"})
	refusedValue[any](t, in, "changes", "\xff")
	refusedValue(t, in, `at ""`, odd{12345})
	refusedValue[any](t, in, "hiding.amount is not exported", &hiding{"r1", 100})
	refusedValue(t, in, "errors.errorString.s is not exported", map[string]any{"error": errors.New("declined")})
	refusedValue(t, in, "Cents", []struct{ V any }{{charged{time.Now(), 5}}})
	refusedValue(t, in, "has no JSON", map[string]any{"c": make(chan int)})
	refusedValue(t, in, "boom", blowing{})
	refusedValue(t, in, "changes when its JSON", struct{ A, B string }{`\ufffd`, "\xff"})
}

// A chain that encoding/json writes and does not read, beyond 10,000 values within each other, is refused when it is
// recorded (D14): each duplicate was ErrUnreadable.
func TestChainTooDeepToBeRead(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	chain := func(n int) (l *link) {
		for range n {
			l = &link{l}
		}
		return l
	}
	refusedValue(t, in, "exceeded max depth", chain(10_001))
	same(t, in, "as deep as can be read", chain(9_999), chain(9_999))
}

// same does a request and its duplicate, and a step in two attempts: all have the value want.
func same[T any](t *testing.T, in instance, id string, v, want T) {
	t.Helper()
	for range 2 {
		res, err := idempotency.Do(ctxT(t), in.Store, key(id), nil, func(context.Context, *idempotency.Attempt) (T, error) { return v, nil })
		require.NoError(t, err, id)
		require.Equal(t, want, res.Value, "%s, replayed %v", id, res.Replayed)
	}
	for range 2 {
		a := begin(t, in, key(id+" step"))
		got, err := idempotency.Step(a, "step", func(context.Context) (T, error) { return v, nil })
		require.NoError(t, err, id)
		require.Equal(t, want, got, id)
		require.NoError(t, a.Abandon(ctxT(t)))
	}
}

// The first caller and every duplicate get the same value (D3): that of
// the function where the type keeps it, and otherwise what is read from its JSON.
func TestFirstValueIsTheReplay(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	at := time.Now()
	type tagged struct {
		List []int `json:",omitempty"`
		Err  error `json:"-"`
		At   time.Time
	}
	same[any](t, in, "struct in any", square{3}, map[string]any{"Side": 3.0})
	same[any](t, in, "what only writes JSON", []any{mute{"x"}, drawn{square{1}}}, []any{"x", map[string]any{"Shape": map[string]any{"Side": 1.0}}})
	same(t, in, "int in any", map[string]any{"id": 7}, map[string]any{"id": 7.0})
	same(t, in, "tagged", tagged{[]int{}, errors.New("x"), at}, tagged{nil, nil, back(t, at)})
	same(t, in, "number", map[string]json.Number{"id": "616581622363398142"}, map[string]json.Number{"id": "616581622363398142"})
	// D15: as a provider has written it.
	same(t, in, "zeros", map[string]any{"price": json.Number("10.50"), "raw": json.RawMessage(`[1.0, 1e2]`)}, map[string]any{"price": 10.5, "raw": []any{1.0, 100.0}})
	same(t, in, "big", struct{ Cents big.Int }{*big.NewInt(5)}, struct{ Cents big.Int }{*big.NewInt(5)})
	same(t, in, "nil and empty", [][]int{nil, {}}, [][]int{nil, {}})
	same(t, in, "escapes", `\ufffd <&>`+"\ufffd", `\ufffd <&>`+"\ufffd")
	same(t, in, "bytes", []byte{0, 255}, []byte{0, 255})
	same[*square](t, in, "nil", nil, nil)
}

func back(t *testing.T, at time.Time) (b time.Time) {
	text, err := json.Marshal(at)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &b))
	return b
}

type (
	billed   struct{ Receipt string }
	longer   struct{ Receipt, Carrier string }
	sent     struct{ Sent bool }
	embedded struct{ billed }
	bespoke  struct{ N int }
	nothing  struct{}
	touchy   struct{ N noNull }
	noNull   int
)

func (b *bespoke) UnmarshalJSON([]byte) error { b.N = 0; return nil }
func (n *noNull) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return errors.New("null is refused")
	}
	return json.Unmarshal(b, (*int)(n))
}

// replayedAs returns what Do returns of a recorded result.
func replayedAs[T any](t *testing.T, in instance, text string) (T, error) {
	t.Helper()
	k := key(rand.Text())
	require.NoError(t, begin(t, in, k).Commit(ctxT(t), []byte(text)))
	res, err := idempotency.Do(ctxT(t), in.Store, k, "payload", func(context.Context, *idempotency.Attempt) (v T, err error) {
		return v, errors.New("it runs again")
	})
	require.NotErrorIs(t, err, idempotency.ErrInvalid)
	return res.Value, err
}

// A620: the result of another function was replayed as a zero value, without an error: two operations had one Key.Op. A
// result with members that the type does not have yet, or not any more, is replayed.
func TestResultOfAnotherFunction(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	refused := func(_ any, err error) {
		t.Helper()
		require.ErrorIs(t, err, idempotency.ErrUnreadable)
		require.ErrorContains(t, err, "Key.Op")
	}
	read := func(want any) func(any, error) {
		return func(v any, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, v)
		}
	}
	as := func(v any, err error) (any, error) { return v, err }
	for _, text := range []string{`{"Receipt":"r"}`, `{"Receipt":"r","Sent2":null}`} {
		refused(as(replayedAs[sent](t, in, text)))
		refused(as(replayedAs[*sent](t, in, text)))
		refused(as(replayedAs[touchy](t, in, text)))
		read(billed{"r"})(as(replayedAs[billed](t, in, text)))
		read(longer{Receipt: "r"})(as(replayedAs[longer](t, in, text)))
		read(embedded{billed{"r"}})(as(replayedAs[embedded](t, in, text)))
		read(bespoke{})(as(replayedAs[bespoke](t, in, text)))
		read(nothing{})(as(replayedAs[nothing](t, in, text)))
	}
	for _, text := range []string{`{}`, `{"Receipt":""}`, `{"receipt":"","Carrier":"dhl"}`, `null`} {
		read(billed{})(as(replayedAs[billed](t, in, text)))
	}
	read(touchy{})(as(replayedAs[touchy](t, in, `{"N":0}`)))
	read(sent{})(as(replayedAs[sent](t, in, `{"Sent":false,"Receipt":"r"}`)))
	read(map[string]string{"Receipt": "r"})(as(replayedAs[map[string]string](t, in, `{"Receipt":"r"}`)))
	read(any(map[string]any{"Receipt": "r"}))(as(replayedAs[any](t, in, `{"Receipt":"r"}`)))
}

// A620: so it was with the recovery point of another function under the name of a step.
func TestStepOfAnotherFunction(t *testing.T) {
	t.Parallel()
	in := shared(t).instance(nil, nil)
	a := begin(t, in, key("1"))
	_, err := idempotency.Step(a, "step", func(context.Context) (billed, error) { return billed{"r"}, nil })
	require.NoError(t, err)
	require.NoError(t, a.Abandon(ctxT(t)))
	_, err = idempotency.Step(begin(t, in, key("1")), "step", func(context.Context) (sent, error) { return sent{}, nil })
	require.ErrorIs(t, err, idempotency.ErrUnreadable)
	require.ErrorContains(t, err, "a name of its own")
}
