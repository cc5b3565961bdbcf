package idempotency_test

import (
	"encoding/json"
	"strings"
	"testing"

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
	require.Empty(t, f.dump())
	require.ErrorIs(t, idempotency.CheckJSON([]byte(`{"a":1,"a":2}`)), idempotency.ErrInvalid)
	require.NoError(t, idempotency.CheckJSON([]byte(`{"a":1,"b":{"a":2}}`)))
}
