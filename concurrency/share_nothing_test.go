package concurrency_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// What has no queue has no share: the total of a limiter without one, and keys that are refused.
func TestShareOfNothing(t *testing.T) {
	t.Parallel()
	f := testkit.Shared(t)
	s, _ := f.Session(nil)
	l, err := concurrency.NewKeyedLimiter(s, "api", 2, nil)
	require.NoError(t, err)
	for _, sem := range []*concurrency.Semaphore{l.Total(), l.Key(""), l.Key(strings.Repeat("k", 300)), l.Key("acme")} {
		_, ok := sem.Share()
		require.False(t, ok)
	}
}
