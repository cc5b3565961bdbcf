package waits

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The wait is the time between the two stamps; a request that is refused in between has none.
func TestStamps(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(Arrived("pod-1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		time.Sleep(10 * time.Millisecond)
		if _, permitted := Admitted(w, r); permitted {
			t.Error("the request has a permit")
		}
	})))
	defer srv.Close()
	c := NewClient(srv.URL)
	if a := c.Post(t.Context(), "/"); !a.Served() || a.Instance != "pod-1" || !a.Without || a.Waited < 10*time.Millisecond || a.Took < a.Waited || a.Admitted == 0 {
		t.Errorf("%+v", a)
	}
	if a := c.Post(t.Context(), "/refused"); a.Served() || a.Status != http.StatusTooManyRequests || a.Admitted != 0 || a.Waited != 0 {
		t.Errorf("%+v", a)
	}
	srv.CloseClientConnections()
	srv.Close()
	if a := c.Post(t.Context(), "/"); a.Status != 0 || a.At == 0 {
		t.Errorf("%+v", a)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	all := []time.Duration{3 * time.Second, time.Second, 2 * time.Second, 4 * time.Second}
	for percent, want := range map[int]float64{0: 1, 50: 2, 75: 3, 95: 4, 100: 4} {
		if got := Percentile(all, percent); got != want {
			t.Errorf("%d: %v, want %v", percent, got, want)
		}
	}
	if Percentile(nil, 50) != 0 {
		t.Error("the percentile of nothing")
	}
}
