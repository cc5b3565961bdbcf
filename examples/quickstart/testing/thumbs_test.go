package thumbs

import (
	"context"
	"errors"
	"testing"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The permit is lost while the second of three pages is rendered: that page is completed,
// and the third one is not begun.
func TestRenderStopsWhenItsPermitIsLost(t *testing.T) {
	etcd := embedtest.Shared(t) // one etcd for all tests of the package
	sess, err := concurrency.NewSession(t.Context(), etcd.NewClient(t, nil).Client, "test",
		&concurrency.SessionOptions{Prefix: etcd.Prefix(t)}) // keys of this test alone
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(t.Context())
	sem, err := concurrency.NewSemaphore(sess, "render", 1, nil)
	if err != nil {
		t.Fatal(err)
	}

	page := func(context.Context) {}
	losesPermit := func(ctx context.Context) {
		st, err := sem.Status(t.Context())
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("%+v, %v; want one holder", st, err)
		}
		if err := etcd.ExpireLease(t.Context(), st.Holders[0].Lease); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done() // the process has noticed
	}
	complete, err := Render(t.Context(), sem, []func(context.Context){page, losesPermit, page})
	if complete != 2 || !errors.Is(err, concurrency.ErrLost) {
		t.Errorf("%d pages complete, %v; want 2 and ErrLost", complete, err)
	}

	complete, err = Render(t.Context(), sem, []func(context.Context){page, page, page}) // the session has a new lease
	if complete != 3 || err != nil {
		t.Errorf("%d pages complete, %v; want 3", complete, err)
	}
}
