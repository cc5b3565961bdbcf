package idemhttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func deliveryTo(w http.ResponseWriter, part time.Duration) *delivery {
	return &delivery{ctl: http.NewResponseController(w), work: context.Background(), closing: context.Background(), part: part, all: time.Hour, stalled: func() {}}
}

// A718: after a pause of the process the timer of a write had fired, and a client that had read counted as one that does not. A
// write that has ended comes first.
func TestWriteThatHasEndedComesFirst(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancel(t.Context())
	end()
	for range 1000 {
		d, ended := deliveryTo(httptest.NewRecorder(), time.Minute), make(chan written, 1)
		ended <- written{n: 1}
		s, ok := d.take(ended, over)
		require.True(t, ok)
		require.Equal(t, 1, s.n)
	}
}

// A718: what writes take is charged as it was measured.
func TestTimeOfWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := deliveryTo(httptest.NewRecorder(), 30*time.Second)
		require.NoError(t, d.do(func() error { time.Sleep(7200 * time.Millisecond); return nil }))
		require.Equal(t, time.Hour-7200*time.Millisecond, d.all)
		for range 1000 {
			require.NoError(t, d.do(func() error { time.Sleep(time.Millisecond); return nil }))
		}
		require.Equal(t, time.Hour-8200*time.Millisecond, d.all, "a client that reads each part in a millisecond is as slow")
		free := make(chan struct{})
		begun := time.Now()
		require.Equal(t, errStalled, d.do(func() error { <-free; return nil }))
		require.Equal(t, 30*time.Second, time.Since(begun))
		close(free)
		d.wait()
	})
}

// odd is a ResponseWriter whose Write does what it says.
type odd struct {
	*httptest.ResponseRecorder
	write func() (int, error)
}

func (o odd) Write([]byte) (int, error) { return o.write() }

// A719: a response to a ResponseWriter that says it has written nothing, and has no error, or that ends its goroutine, did not end.
func TestDeliveryToAnOddWriter(t *testing.T) {
	t.Parallel()
	calls := 0
	w := odd{httptest.NewRecorder(), func() (int, error) {
		if calls++; calls > 2 {
			panic("a part is written again")
		}
		return 0, nil
	}}
	n, err := deliveryTo(w, time.Minute).write(w, make([]byte, maxPart+1))
	require.NoError(t, err)
	require.Equal(t, maxPart+1, n)
	w.write = func() (int, error) { runtime.Goexit(); return 0, nil }
	_, err = deliveryTo(w, time.Minute).write(w, []byte("data"))
	require.Equal(t, errExited, err)
}

// deadlines is a ResponseWriter whose Write blocks until end, with its last write deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	end  chan struct{}
	mu   sync.Mutex
	last time.Time
}

func (w *deadlines) Write(p []byte) (int, error) { <-w.end; return len(p), nil }

func (w *deadlines) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = at
	return nil
}

// A706: a goroutine of the handler that sets the write deadline beside a write that is left behind was a data race, and could
// replace the deadline that ends the connection.
func TestDeadlineBesideAWriteLeftBehind(t *testing.T) {
	t.Parallel()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder(), end: make(chan struct{})}
	rec := record(w, httptest.NewRequest(http.MethodPost, "/", nil), 1<<20, func(error) {})
	rec.out = deliveryTo(w, 50*time.Millisecond)
	var over atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !over.Load() {
			_ = rec.SetWriteDeadline(time.Time{})
			runtime.Gosched()
		}
	})
	_, err := rec.out.write(w, []byte("data"))
	require.Equal(t, errStalled, err)
	close(w.end)
	rec.out.wait()
	rec.out.settle()
	rec.out.wait()
	over.Store(true)
	all.Wait()
	require.NoError(t, rec.SetWriteDeadline(time.Time{}))
	require.Equal(t, time.Unix(1, 0), w.last)
}
