package downstream

import (
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

func start(t *testing.T) Client {
	srv := httptest.NewServer(New().Handler())
	t.Cleanup(srv.Close)
	return Client{srv.URL}
}

// The service counts each call, of each user and of all, and begins anew with those that run.
func TestBook(t *testing.T) {
	t.Parallel()
	c := start(t)
	var wg sync.WaitGroup
	for _, user := range []string{"ann", "ann", "bob"} {
		wg.Go(func() {
			if err := c.Work(t.Context(), user, 500*time.Millisecond, time.Time{}); err != nil {
				t.Error(err)
			}
		})
	}
	for {
		b, err := c.Book(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.Calls == 3 {
			break
		}
	}
	wg.Wait()
	b, err := c.Reset(t.Context())
	if err != nil || b.Now != 0 || b.Calls != 3 || b.Peak < 1 || b.Peak > 3 || b.Peaks["ann"] < 1 || b.Peaks["bob"] != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	again, err := c.Book(t.Context())
	if err != nil || again.Peak != 0 || again.Calls != 0 || len(again.Peaks) != 0 || len(again.Levels) != 6 {
		t.Errorf("%+v, %v", again, err)
	}
}

// A call whose permit has ended is refused.
func TestLate(t *testing.T) {
	t.Parallel()
	c := start(t)
	if err := c.Work(t.Context(), "ann", time.Millisecond, time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if err := c.Work(t.Context(), "ann", time.Millisecond, time.Now().Add(-time.Second)); err == nil {
		t.Error("a late call ran")
	}
	if b, err := c.Book(t.Context()); err != nil || b.Late != 1 || b.Calls != 1 {
		t.Errorf("%+v, %v", b, err)
	}
}

// A caller that leaves does not end the work.
func TestWorkGoesOn(t *testing.T) {
	t.Parallel()
	c := start(t)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { left <- c.Work(ctx, "ann", 2*time.Second, time.Time{}) }()
	until := func(what string, ok func(Book) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			b, err := c.Book(t.Context())
			switch {
			case err != nil:
				t.Fatal(err)
			case ok(b):
				return
			case time.Now().After(end):
				t.Fatalf("%s: %+v", what, b)
			}
		}
	}
	until("it begins", func(b Book) bool { return b.Now == 1 })
	leave()
	if err := <-left; err == nil {
		t.Error("the caller has not left")
	}
	until("it ends", func(b Book) bool { return b.Now == 0 })
	if b, err := c.Book(t.Context()); err != nil || len(b.Levels) != 2 || b.Levels[1].At-b.Levels[0].At < int64(2*time.Second) {
		t.Errorf("%+v, %v", b, err)
	}
}
