package thumbs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

// etcd is away while the first replica renders the second of three pages. Its permit is lost before etcd could grant it
// to another; a new request ends with its deadline, and says why. When etcd is back, both replicas render: neither
// needs a restart.
func TestRenderWhileEtcdIsAway(t *testing.T) {
	etcd := embedtest.Start(t, nil) // not Shared: this test stops it
	first, second := replicas(t, etcd)

	loseEtcd := func(ctx context.Context) {
		if err := etcd.Crash(0); err != nil {
			t.Error(err)
			return
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		complete, err := Render(short, second, page)
		if complete != 0 || !errors.Is(err, concurrency.ErrUnavailable) {
			t.Errorf("without etcd: %d pages complete, %v; want 0 and ErrUnavailable", complete, err)
		}
		<-ctx.Done() // 1.5 s after the last renewal
	}
	complete, err := Render(t.Context(), first, page, loseEtcd, page)
	if complete != 2 || !errors.Is(err, concurrency.ErrLost) {
		t.Errorf("%d pages complete, %v; want 2 and ErrLost", complete, err)
	}

	if err := etcd.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, sem := range []*concurrency.Semaphore{first, second} {
		if complete, err := Render(t.Context(), sem, page); complete != 1 || err != nil {
			t.Errorf("etcd is back: %d pages complete, %v; want 1", complete, err)
		}
	}
}
