package concurrency_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A305 in internal/proof/tested-failures.md: a key has a limit of its own before a default is stored. A weight between the two
// was refused, as above the key's limit.
func TestOwnLimitBeforeTheDefault(t *testing.T) {
	t.Parallel()
	f, ctx := shared(t), ctxT(t)
	for name, total := range map[string]int{"api": 0, "with a total": 20} {
		s, _ := f.Session(idle())
		lim, err := concurrency.NewKeyedLimiter(s, name, 2, &concurrency.KeyedLimiterOptions{Total: total})
		require.NoError(t, err)
		require.NoError(t, lim.Key("big").SetLimit(ctx, 10, concurrency.CreateLimit()))
		_, err = lim.Key("other").Acquire(ctx, concurrency.Weight(5))
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		_, err = lim.Key("big").Acquire(ctx, concurrency.Weight(11))
		require.ErrorIs(t, err, concurrency.ErrInvalid)
		require.Empty(t, f.Keys(url.PathEscape(name)+"/default"), "a call that is refused stores nothing")
		p, err := lim.Key("big").Acquire(ctx, concurrency.Weight(5))
		require.NoError(t, err)
		require.NoError(t, p.Release(ctx))
		require.Len(t, f.Keys(url.PathEscape(name)+"/default"), 1)
		_, err = lim.Key("other").Acquire(ctx, concurrency.Weight(5))
		require.ErrorIs(t, err, concurrency.ErrInvalid)
	}
}
