package idempotency_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// A703: a message is delivered again to a release whose payload has one more member: it is refused as another payload, and the
// error says how that can be. The bytes of the message are the same payload, and so is a member with omitempty that is empty.
func TestPayloadOfAnotherRelease(t *testing.T) {
	t.Parallel()
	type order struct {
		ID     string `json:"id"`
		Amount int    `json:"amount"`
	}
	type withCurrency struct {
		order
		Currency string `json:"currency"`
	}
	type maybeCurrency struct {
		order
		Currency string `json:"currency,omitempty"`
	}
	message := []byte(`{"id":"7","amount":5}`)
	read := func(to any) any { require.NoError(t, json.Unmarshal(message, to)); return to }
	f := shared(t)
	former, next := f.instance(nil, nil), f.instance(nil, nil)
	for name, c := range map[string]struct {
		former, next any
		refused      bool
	}{
		"another member":          {read(new(order)), read(new(withCurrency)), true},
		"a member with omitempty": {read(new(order)), read(new(maybeCurrency)), false},
		"the bytes":               {message, message, false},
	} {
		first, _, err := former.Begin(ctxT(t), key(name), c.former)
		require.NoError(t, err)
		require.NoError(t, first.Commit(ctxT(t), nil))
		a, out, err := next.Begin(ctxT(t), key(name), c.next)
		require.Nil(t, a)
		if !c.refused {
			require.NoError(t, err, name)
			require.NotNil(t, out)
			continue
		}
		require.ErrorIs(t, err, idempotency.ErrMismatch)
		require.ErrorContains(t, err, "a release whose payload has other members")
	}
}
