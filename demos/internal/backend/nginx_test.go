package backend

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// withNginx returns a Front with nginx, or skips the test if there is none.
func withNginx(t *testing.T, places int, leastBusy bool) *nginx {
	t.Helper()
	program := ""
	for _, name := range []string{"nginx", "../../../bin/nginx", "/usr/sbin/nginx"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		t.Skip("nginx is not installed (make seeds installs one in bin)")
	}
	front, err := Choice{program}.Front(places, leastBusy)
	if err != nil {
		t.Fatal(err)
	}
	return front.(*nginx)
}

// serving serves h as Serve does, and returns the URL of the server.
func serving(t *testing.T, sockets string, h http.HandlerFunc) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	also, err := net.Listen("unix", socket(sockets, port))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	for _, ln := range []net.Listener{ln, also} {
		go func() { _ = srv.Serve(ln) }()
	}
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + ln.Addr().String()
}

// The places of nginx are filled, emptied and filled again while it serves.
func TestNginxTakesTurns(t *testing.T) {
	t.Parallel()
	x := withNginx(t, 3, false)
	front := listen(t, x)
	if got := status(t, front); got != http.StatusBadGateway {
		t.Errorf("no server is there, and the answer is %d", got)
	}
	answers := func(status int) string {
		return serving(t, x.Sockets(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	for i := range 3 {
		set(t, x, i, answers(200+i))
	}
	ask := func() (all []int) { // after a failure nginx leaves out some turns of a server
		for range 12 {
			all = append(all, status(t, front))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if got := ask(); !slices.Equal(got, []int{200, 201, 202}) {
		t.Error(got)
	}
	set(t, x, 2, "")
	if got := ask(); !slices.Equal(got, []int{200, 201}) {
		t.Errorf("the third server is dead: %v", got)
	}
	set(t, x, 2, answers(203))
	if got := ask(); !slices.Equal(got, []int{200, 201, 203}) {
		t.Error(got)
	}
	if !strings.HasPrefix(x.Name(), "nginx/") {
		t.Errorf("its name is %q", x.Name())
	}
	x.Close()
	if _, err := os.Stat(x.dir); !os.IsNotExist(err) {
		t.Errorf("its folder is there: %v", err)
	}
}

// A server that does not answer gets no further requests while others have fewer.
func TestNginxChoosesTheLeastBusy(t *testing.T) {
	t.Parallel()
	x := withNginx(t, 2, true)
	front := listen(t, x)
	begun, end := make(chan struct{}), make(chan struct{})
	set(t, x, 0, serving(t, x.Sockets(), func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	}))
	first := make(chan int, 1)
	go func() { first <- status(t, front) }()
	<-begun
	set(t, x, 1, serving(t, x.Sockets(), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
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

// What a demo relies on: a POST whose server dies is not sent to another server, and a server sees that the client has
// hung up.
func TestNginxRepeatsNoPost(t *testing.T) {
	t.Parallel()
	x := withNginx(t, 2, false)
	front := listen(t, x)
	calls, left := make(chan string, 10), make(chan struct{}, 2)
	for i := range 2 {
		set(t, x, i, serving(t, x.Sockets(), func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // net/http sees a client that hangs up only when the body was read
			calls <- r.URL.Path
			if r.URL.Path == "/dies" {
				panic(http.ErrAbortHandler)
			}
			<-r.Context().Done()
			left <- struct{}{}
		}))
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.PostForm(front+"/dies", url.Values{"a": {"b"}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway || len(calls) != 1 {
		t.Errorf("status %d after %d calls", resp.StatusCode, len(calls))
	}
	<-calls
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, front+"/waits", strings.NewReader("a=b"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-calls
		hangUp()
	}()
	if resp, err := client.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("the request that was given up has status %d", resp.StatusCode)
	}
	<-left
}

// A program that is not nginx, or does not start, is an error.
func TestNginxThatIsNone(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"no-such-nginx", "true"} {
		if front, err := (Choice{program}).Front(2, false); err == nil || !strings.Contains(err.Error(), program) {
			t.Errorf("%s: %v, %v", program, front, err)
		}
	}
	x := withNginx(t, 1, false)
	x.dir += "\n" // which its configuration cannot have
	if _, err := x.Listen(); err == nil {
		t.Error("nginx serves, although its folder does not exist")
	}
	x.dir = strings.TrimSuffix(x.dir, "\n")
	x.Close()
}
