package engine

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A call that waits on an epoch takes the cause of its context for its error. So an epoch
// that ends gives its own cause, also while Close begins: context.Canceled would be read as
// the caller's ctx. The order in which a context ends what depends on it is random.
func TestAcceptingHasItsCause(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		epoch, end := context.WithCancelCause(context.Background())
		session, refuse := context.WithCancel(context.Background())
		ctx := accepting(epoch, session)
		var both sync.WaitGroup
		both.Go(func() { end(ErrEpoch) })
		both.Go(refuse)
		<-ctx.Done()
		require.NotErrorIs(t, context.Cause(ctx), context.Canceled)
		both.Wait()
		require.NotErrorIs(t, context.Cause(ctx), context.Canceled)
	}
}
