package backend

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// status sends a request and returns its status.
func status(t *testing.T, url string) int {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// listen begins to serve a reverse proxy.
func listen(t *testing.T, front Front) (url string) {
	t.Helper()
	t.Cleanup(front.Close)
	url, err := front.Listen()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// set sets the URL of the server in a place.
func set(t *testing.T, front Front, i int, url string) {
	t.Helper()
	if err := front.Set(i, url); err != nil {
		t.Fatal(err)
	}
}

func answering(t *testing.T, status int) (url string) {
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	t.Cleanup(back.Close)
	return back.URL
}

func TestProxyTakesTurns(t *testing.T) {
	t.Parallel()
	p := NewProxy(3, false)
	front := listen(t, p)
	if got := status(t, front); got != http.StatusBadGateway {
		t.Errorf("no server is there, and the answer is %d", got)
	}
	for i := range 3 {
		set(t, p, i, answering(t, 200+i))
	}
	ask := func() (all []int) {
		for range 4 {
			all = append(all, status(t, front))
		}
		return all
	}
	if got := ask(); !slices.Equal(got, []int{200, 201, 202, 200}) {
		t.Error(got)
	}
	set(t, p, 2, "")
	if got := ask(); !slices.Equal(got, []int{201, 200, 201, 200}) {
		t.Error(got)
	}
}

// A server that does not answer gets no further requests while others have fewer.
func TestProxyChoosesTheLeastBusy(t *testing.T) {
	t.Parallel()
	p := NewProxy(2, true)
	front := listen(t, p)
	begun, end := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	}))
	defer slow.Close()
	set(t, p, 0, slow.URL)
	set(t, p, 1, answering(t, 204))
	first := make(chan int, 1)
	go func() { first <- status(t, front) }()
	<-begun
	for range 5 {
		if got := status(t, front); got != 204 {
			t.Errorf("the answer is %d", got)
		}
	}
	close(end)
	if got := <-first; got != 200 {
		t.Errorf("the slow answer is %d", got)
	}
}
