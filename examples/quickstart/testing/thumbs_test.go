package thumbs

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The permit is lost while the second of three pages is rendered. Render completes that page
// and does not begin the third one.
func TestRenderStopsWhenItsPermitIsLost(t *testing.T) {
	etcd := embedtest.Shared(t) // one etcd for all tests of the package
	sess, err := concurrency.NewSession(t.Context(), etcd.Client(), "test",
		&concurrency.SessionOptions{Prefix: etcd.Prefix(t)}) // keys of this test only
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(t.Context())
	sem, err := concurrency.NewSemaphore(sess, "render", 1, nil)
	if err != nil {
		t.Fatal(err)
	}

	page := func(context.Context) {}
	losePermit := func(ctx context.Context) {
		st, err := sem.Status(t.Context())
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("%+v, %v; want one holder", st, err)
		}
		if err := etcd.ExpireLease(t.Context(), st.Holders[0].Lease); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done() // the session reports the loss
	}
	complete, err := Render(t.Context(), sem, []func(context.Context){page, losePermit, page})
	if complete != 2 || !errors.Is(err, concurrency.ErrLost) {
		t.Errorf("%d pages complete, %v; want 2 and ErrLost", complete, err)
	}

	complete, err = Render(t.Context(), sem, []func(context.Context){page, page, page}) // the session has a new lease
	if complete != 3 || err != nil {
		t.Errorf("%d pages complete, %v; want 3", complete, err)
	}
}
