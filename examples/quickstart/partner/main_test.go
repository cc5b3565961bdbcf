package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/concurrency/limithttp"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

func Example() {
	if err := program.Run(context.Background(), cluster.Etcd{}, run); err != nil {
		log.Fatal(err)
	}
	// Output: 40 answered; at most 8 at the partner at a time
}

// A caller that hangs up does not end its call: the permit is held until the partner has answered. With a full limit
// nothing is sent.
func TestCallerHangsUp(t *testing.T) {
	sess, err := concurrency.NewSession(t.Context(), embedtest.Start(t, nil).Client(), "partner", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close(context.WithoutCancel(t.Context()))
	client, err := limited(sess)
	if err != nil {
		t.Fatal(err)
	}
	sem, err := concurrency.NewSemaphore(sess, "partner", 8, &concurrency.SemaphoreOptions{AdoptLimit: true})
	if err != nil {
		t.Fatal(err)
	}
	other, err := sem.Acquire(t.Context()) // of another process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Release(t.Context()) }()
	if err := sem.SetLimit(t.Context(), 2); err != nil { // one is left
		t.Fatal(err)
	}
	ctx, hangUp := context.WithCancel(t.Context())
	got, answer := make(chan struct{}), make(chan struct{})
	requests := 0
	partner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests++
		close(got)
		<-answer
	}))
	defer partner.Close()
	first := make(chan error, 1)
	go func() {
		_, err := call(ctx, client, partner.URL)
		first <- err
	}()
	<-got
	hangUp()
	if _, err := call(t.Context(), client, partner.URL); !errors.Is(err, errBusy) || !errors.Is(err, concurrency.ErrFull) {
		t.Errorf("the next call: %v, want errBusy and ErrFull: the partner works on", err)
	}
	close(answer)
	if err := <-first; err != nil {
		t.Errorf("the call whose caller has hung up: %v", err)
	}
	if requests != 1 {
		t.Errorf("the partner got %d requests, want one", requests)
	}
}

// refused is a transport that sends nothing.
type refused struct{ err error }

func (r refused) RoundTrip(*http.Request) (*http.Response, error) { return nil, r.err }

// Only an error of a request that was not sent says that the caller may come back.
func TestBusy(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("%w: %w", limithttp.ErrNotSent, context.DeadlineExceeded): true, // while it was queued
		fmt.Errorf("%w: %w", limithttp.ErrNotSent, concurrency.ErrEvicted):   true,
		concurrency.ErrLost: false, context.DeadlineExceeded: false,
	} {
		if _, got := call(t.Context(), &http.Client{Transport: refused{err}}, "http://partner"); errors.Is(got, errBusy) != want {
			t.Errorf("%v: %v, want errBusy: %v", err, got, want)
		}
	}
}

// A679: the partner has slowest for its answer, also to the first call of a process, which waits a second longer for its token.
func TestTimeForTheAnswer(t *testing.T) {
	var left time.Duration
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		end, _ := r.Context().Deadline()
		left = time.Until(end)
		return nil, limithttp.ErrNotSent
	})}
	began := time.Now()
	_, _ = call(t.Context(), client, "http://partner")
	if left += time.Since(began); left < 2*time.Second+time.Second+slowest { // Options.Wait, the first token, and the answer
		t.Errorf("a call has %v", left)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A closed session sends nothing: the caller may come back, to another process.
func TestSessionIsClosed(t *testing.T) {
	sess, err := concurrency.NewSession(t.Context(), embedtest.Start(t, nil).Client(), "partner", nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := limited(sess)
	if err != nil {
		t.Fatal(err)
	}
	if err := sess.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t.Context(), client, "http://partner"); !errors.Is(err, errBusy) || !errors.Is(err, concurrency.ErrClosed) {
		t.Errorf("%v, want errBusy and ErrClosed", err)
	}
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}
