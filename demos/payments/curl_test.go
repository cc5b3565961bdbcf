package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
)

// hasCurl skips the test if there is no curl.
func hasCurl(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	return program
}

// All requests of curl are there before the first one is answered, and its answers are those of the server.
func TestCurl(t *testing.T) {
	t.Parallel()
	program := hasCurl(t)
	var arrived sync.WaitGroup
	arrived.Add(copies)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		arrived.Wait()
		in, err := io.ReadAll(r.Body)
		if err != nil || string(in) != `{"amount":7}` || r.Method != http.MethodPost || r.URL.Path != "/pay/no-wait/order-1" || r.Header.Get("Idempotency-Key") != `"key"` {
			t.Errorf("%s %s, %q, %v: %s %v", r.Method, r.URL, in, r.Header, in, err)
		}
		w.Header().Set(replayHeader, "true")
		backend.Reply(w, http.StatusConflict, map[string]string{"code": inProgress})
	}))
	defer srv.Close()
	got, err := curl(t.Context(), program, srv.URL, request{way: byNoWait, order: "order-1", key: "key", amount: 7}, copies)
	if err != nil || len(got) != copies {
		t.Fatalf("%d answers, %v", len(got), err)
	}
	for _, a := range got {
		if a.Status != http.StatusConflict || a.code() != inProgress || a.Header.Get(replayHeader) != "true" || a.Took <= 0 {
			t.Errorf("%+v", a)
		}
	}
}

// A request without an answer has status 0, and a program that is not curl is an error.
func TestCurlWithoutAnswers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer srv.Close()
	got, err := curl(t.Context(), hasCurl(t), srv.URL, request{way: byNoWait, order: "order-1", key: "key"}, 2)
	if err != nil || len(got) != 2 || got[0].Status != 0 || got[1].Status != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, program := range []string{"no-such-curl", "true"} {
		if got, err := curl(t.Context(), program, srv.URL, request{}, 2); err == nil {
			t.Errorf("%s: %+v", program, got)
		}
	}
}

// The phase of curl is in the run, and what is not one success and four refusals is reported.
func TestByCurl(t *testing.T) {
	t.Parallel()
	o := run(t, "-orders", "2", "-only", "curl|no guard", "-curl", hasCurl(t))
	if !o.OK || len(o.Phases) != 1 || o.Phases[0].Orders != 2 {
		t.Errorf("%+v", o)
	}
	p := byCurl().promise
	fine := result{First: []answer{{Status: 201, Body: []byte("{}")}, {Status: 409}, {Status: 409}, {Status: 409}, {Status: 409}}}
	twice := fine
	twice.First = append(fine.First[:4:4], fine.First[0])
	for name, r := range map[string]result{"one success": fine, "two": twice} {
		said := strings.Join(judge(*p, []result{r}), "\n")
		if found := strings.Contains(said, "answers with 2xx"); found != (name == "two") {
			t.Errorf("%s: %s", name, said)
		}
	}
	var out bytes.Buffer
	(&outcome{Front: "nginx/1.2.3"}).Write(&out)
	if !strings.Contains(out.String(), "the proxy is nginx/1.2.3\n") {
		t.Errorf("%s", &out)
	}
}
