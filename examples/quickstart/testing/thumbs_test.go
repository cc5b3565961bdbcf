package thumbs

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// The first replica loses its permit while the second of three pages is rendered, and the other replica waits. The
// first one completes that page and does not begin the third one; then the other one renders.
func TestRenderStopsWhenItsPermitIsLost(t *testing.T) {
	etcd := embedtest.Shared(t) // one etcd for all tests of the package
	first, second := replicas(t, etcd)

	other := make(chan error, 1)
	losePermit := func(ctx context.Context) {
		go func() {
			_, err := Render(t.Context(), second, page)
			other <- err
		}()
		for st, err := range first.Watch(ctx) { // until the other replica waits
			if err != nil {
				t.Errorf("watch: %v", err)
				return
			}
			if len(st.Holders) == 1 && len(st.Waiters) == 1 {
				// With a limit above 1 choose the Holder by its Owner, a SessionOptions.Owner of each replica: the oldest is the
				// first. Its lease has all permits of that replica.
				if err := etcd.ExpireLease(t.Context(), st.Holders[0].Lease); err != nil {
					t.Error(err)
				}
				break
			}
		}
		<-ctx.Done() // the session reports the loss
	}
	complete, err := Render(t.Context(), first, page, losePermit, page)
	if complete != 2 || !errors.Is(err, concurrency.ErrLost) {
		t.Errorf("%d pages complete, %v; want 2 and ErrLost", complete, err)
	}
	if err := <-other; err != nil {
		t.Errorf("the other replica: %v", err)
	}
}
