package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// What the provider does, once, with the charge of an order.
const (
	late    = "answers too late"
	fails   = "charges and answers 500"
	dies    = "the server is killed before the charge"
	diesNow = "the server is killed after the charge"
	moves   = "charges and redirects to a page"
	answers = "answers"
)

// shop is one server at a time, and a provider that takes keys.
type shop struct {
	t      *testing.T
	etcd   *embedtest.Cluster
	bank   *httptest.Server
	server *progtest.Program
	url    string

	mu    sync.Mutex
	plan  map[string]string          // by order
	keys  map[string]map[string]bool // of the requests for an order
	books map[string]string          // orders by key: the charges
}

// A payment is charged once in each kind of fault, under one key, and nothing but its client's repetition is needed.
func TestChargedOnceUnderItsKey(t *testing.T) {
	if testing.Short() {
		t.Skip("it kills servers")
	}
	s := &shop{t: t, etcd: embedtest.Start(t, nil), plan: map[string]string{}, keys: map[string]map[string]bool{}, books: map[string]string{}}
	if s.etcd.External() {
		t.Skip("leases of an external cluster cannot be expired")
	}
	s.bank = httptest.NewServer(http.HandlerFunc(s.charge))
	t.Cleanup(s.bank.Close)
	s.starts()
	t.Cleanup(func() { _ = s.server.Process.Kill(); _ = s.server.Wait() })
	for _, fault := range []string{answers, late, fails, moves, dies, diesNow} {
		s.plan[fault] = fault // the order has its name
		receipt := s.buys(fault)
		if again := s.buys(fault); again != receipt {
			t.Errorf("%s: a duplicate gets %s, not %s", fault, again, receipt)
		}
		charged := 0
		for _, order := range s.books {
			if order == fault {
				charged++
			}
		}
		if charged != 1 || len(s.keys[fault]) != 1 {
			t.Errorf("%s: charged %d times, under %d keys", fault, charged, len(s.keys[fault]))
		}
	}
	if len(s.books) != 6 {
		t.Errorf("6 orders, and %d charges", len(s.books))
	}
}

// charge is the provider.
func (s *shop) charge(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/page" {
		fmt.Fprint(w, "a page that is no receipt")
		return
	}
	var p payment
	_ = json.NewDecoder(r.Body).Decode(&p)
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	does := s.plan[p.Order]
	s.plan[p.Order] = answers
	if s.keys[p.Order] == nil {
		s.keys[p.Order] = map[string]bool{}
	}
	s.keys[p.Order][key] = true
	if does != dies {
		s.books[key] = p.Order
	}
	s.mu.Unlock()
	switch does {
	case fails:
		http.Error(w, "down", http.StatusInternalServerError)
	case moves:
		http.Redirect(w, r, "/page", http.StatusSeeOther)
	case late:
		<-r.Context().Done() // the server gives up
	case dies, diesNow:
		_ = s.server.Process.Kill()
		<-r.Context().Done()
	default:
		fmt.Fprint(w, "receipt of ", p.Order, "\x07")
	}
}

// starts starts a server, and waits until it serves.
func (s *shop) starts() {
	p := progtest.New(s.t, "-endpoints", strings.Join(s.etcd.Endpoints(), ","), "-listen", "127.0.0.1:0", "-provider", s.bank.URL, "-patience", "200ms")
	p.Stderr = nil
	stderr, err := p.StderrPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.server = p
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "serving payments on "); ok {
			s.url = "http://" + strings.TrimSuffix(strings.Fields(rest)[0], ".") + "/payments"
			go func() { _, _ = io.Copy(io.Discard, stderr) }()
			return
		}
	}
	s.t.Fatal("the server has ended")
}

// buys is the client: it repeats its request until it has a receipt. If the server dies, another one is started.
func (s *shop) buys(order string) (receipt string) {
	for range 5 {
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(fmt.Sprintf(`{"order":%q,"cents":100}`, order)))
		if err != nil {
			s.t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", `"payment of `+order+`"`)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			_ = s.server.Wait()
			s.expires()
			s.starts()
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusCreated {
			var got struct{ Receipt string }
			if err := json.Unmarshal(body, &got); err != nil || got.Receipt != "receipt of "+order+"\x07" {
				s.t.Fatalf("%s: %v %s", order, err, body)
			}
			return got.Receipt
		}
	}
	s.t.Fatalf("%s: no receipt", order)
	return ""
}

// expires ends the lease of a server that was killed, which etcd would do within the TTL.
func (s *shop) expires() {
	alive, err := s.etcd.Client().Get(s.t.Context(), "/etcdkit/v1/shop/session/", clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kv := range alive.Kvs {
		if err := s.etcd.ExpireLease(s.t.Context(), clientv3.LeaseID(kv.Lease)); err != nil {
			s.t.Fatal(err)
		}
	}
}
