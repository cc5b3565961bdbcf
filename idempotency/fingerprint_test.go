package idempotency_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// Two payloads that would be compared as one are refused, and nothing is begun: otherwise the
// second request would get the first one's outcome.
func TestPayloadsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for name, pair := range map[string][2]any{
		"a name twice":     {raw(`{"amount":1,"amount":1000}`), raw(`{"amount":2,"amount":1000}`)},
		"no UTF-8":         {raw("{\"to\":\"\xfe\"}"), raw("{\"to\":\"\xff\"}")},
		"halves":           {raw(`{"to":"\ud800"}`), raw(`{"to":"\udc01"}`)},
		"strings":          {struct{ To string }{"\xfe"}, struct{ To string }{"\xff"}},
		"readers":          {strings.NewReader("pay 1"), strings.NewReader("pay 1000")},
		"unexported field": {struct{ amount int }{1}, struct{ amount int }{1000}},
	} {
		for _, payload := range pair {
			at, rec, err := a.Begin(ctxT(t), key(name), payload)
			require.ErrorIs(t, err, idempotency.ErrInvalid, name)
			require.Nil(t, at)
			require.Nil(t, rec)
		}
	}
	require.Empty(t, f.Values("/idempotency/"))
	require.ErrorIs(t, idempotency.CheckJSON([]byte(`{"a":1,"a":2}`)), idempotency.ErrInvalid)
	require.NoError(t, idempotency.CheckJSON([]byte(`{"a":1,"b":{"a":2}}`)))
}

// stampedPayment hides its amount: the method of what it embeds stands for the whole.
type stampedPayment struct {
	time.Time
	Amount int
}

// A payload is refused whose type leaves an exported field out of its JSON: the request with
// another amount would get the first one's outcome.
func TestPayloadsThatHideFields(t *testing.T) {
	t.Parallel()
	f := shared(t)
	a := f.instance(nil, nil)
	at := time.Unix(1, 0)
	for _, amount := range []int{100, 999} {
		_, err := idempotency.Do(ctxT(t), a.Store, key("1"), stampedPayment{at, amount}, func(context.Context, *idempotency.Attempt) (int, error) {
			return amount, nil
		})
		require.ErrorIs(t, err, idempotency.ErrInvalid)
		require.ErrorContains(t, err, "stampedPayment")
		require.ErrorContains(t, err, "Amount")
		_, _, err = a.Begin(ctxT(t), key("2"), nil, idempotency.AlsoCompare(&stampedPayment{at, amount}))
		require.ErrorIs(t, err, idempotency.ErrInvalid)
	}
	require.Empty(t, f.Values("/idempotency/"))
}
