package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}

// What the provider does with a charge.
const (
	answers      = "answers"
	away         = "is away"
	fails        = "fails before the charge"
	failsAfter   = "fails after the charge"
	late         = "answers too late, without a charge"
	lateAfter    = "answers too late, after the charge"
	redirects    = "redirects after the charge to where nothing listens"
	serverDies   = "the server is killed before the charge"
	serverDiesAt = "the server is killed after the charge"
)

// Q6: a service that was written from the README charges each order once, in each order of faults: its
// client repeats the request with its key, and an operator who has nothing but the command and the
// provider's book decides where nothing else does.
func TestChargedOnceInEachOrderOfFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command and kills servers")
	}
	s := newShop(t)
	faults := []string{away, fails, failsAfter, late, lateAfter, redirects, serverDies, serverDiesAt}
	n := 0
	for _, first := range faults {
		for _, second := range append(faults, answers) {
			n++
			order := fmt.Sprint("order-", n)
			s.plan[order] = []string{first, second}
			s.buys(order)
			if got := s.book[order]; got != 1 {
				t.Fatalf("%s, then %s: charged %d times", first, second, got)
			}
		}
	}
}

// strange is at the end of a provider's receipts: Go writes it in quotes as JSON does not.
const strange = "\x07 \U000e0020"

// shop is one server at a time, the provider, a client and an operator.
type shop struct {
	t       *testing.T
	etcd    *embedtest.Cluster
	command string
	server  *progtest.Program
	url     string

	provider net.Addr
	stop     func()

	killed bool // the server of the latest attempt

	mu   sync.Mutex
	plan map[string][]string
	book map[string]int
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, etcd: embedtest.Start(t, nil), command: filepath.Join(t.TempDir(), "etcdkit"), plan: map[string][]string{}, book: map[string]int{}}
	if s.etcd.External() {
		t.Skip("leases of an external cluster cannot be expired")
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.command, "../../../cmd/etcdkit").CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	s.opens()
	s.starts()
	t.Cleanup(func() { s.stop(); _ = s.server.Process.Kill(); _ = s.server.Wait() })
	return s
}

// opens starts the provider, at the same address each time.
func (s *shop) opens() {
	addr := "127.0.0.1:0"
	if s.provider != nil {
		addr = s.provider.String()
	}
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(s.charge)}
	go func() { _ = srv.Serve(lis) }()
	s.provider, s.stop = lis.Addr(), func() { _ = srv.Close() }
}

// charge is the provider.
func (s *shop) charge(w http.ResponseWriter, r *http.Request) {
	var p payment
	_ = json.NewDecoder(r.Body).Decode(&p)
	s.mu.Lock()
	does := s.next(p.Order)
	if does == answers || does == failsAfter || does == lateAfter || does == redirects || does == serverDiesAt {
		s.book[p.Order]++
	}
	s.mu.Unlock()
	switch does {
	case fails, failsAfter:
		http.Error(w, "down", http.StatusBadGateway)
	case redirects:
		http.Redirect(w, r, "http://127.0.0.1:1/receipt", http.StatusSeeOther)
	case late, lateAfter:
		<-r.Context().Done() // the server gives up
	case serverDies, serverDiesAt:
		_ = s.server.Process.Kill()
		<-r.Context().Done()
	default:
		fmt.Fprint(w, "receipt of ", p.Order, strange)
	}
}

// next returns what happens to the next charge of an order.
func (s *shop) next(order string) string {
	all := s.plan[order]
	if len(all) == 0 {
		return answers
	}
	s.plan[order] = all[1:]
	return all[0]
}

// starts starts a server, and waits until it serves.
func (s *shop) starts() {
	p := progtest.New(s.t, "-endpoints", strings.Join(s.etcd.Endpoints(), ","), "-listen", "127.0.0.1:0", "-provider", "http://"+s.provider.String(), "-patience", "100ms")
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

// buys is the client: it repeats its request until it has a receipt.
func (s *shop) buys(order string) {
	for range 10 {
		s.mu.Lock()
		isAway := len(s.plan[order]) > 0 && s.plan[order][0] == away
		if isAway {
			s.next(order)
			s.stop()
		}
		s.mu.Unlock()
		status, body := s.sends(order)
		s.killed = s.killed && status == http.StatusConflict || status == 0
		if isAway {
			s.opens()
		}
		switch status {
		case 0:
			_ = s.server.Wait()
			s.expires()
			s.starts()
		case http.StatusConflict:
			s.decides(order)
		case http.StatusCreated:
			var got struct{ Receipt string }
			if err := json.Unmarshal([]byte(body), &got); err != nil || strings.TrimSuffix(got.Receipt, strange) != "receipt of "+order {
				s.t.Fatalf("%s: %v %s", order, err, body)
			}
			return
		}
	}
	s.t.Fatalf("%s: no receipt", order)
}

// sends sends the request once. The status is 0 if the server does not answer.
func (s *shop) sends(order string) (status int, body string) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(fmt.Sprintf(`{"order":%q,"cents":100}`, order)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", strconv.Quote("payment of "+order))
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
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

// decides is the operator: the list shows which order is of unknown outcome, and the provider's book
// whether it was charged.
func (s *shop) decides(order string) {
	var all struct {
		Requests []struct {
			Ref, Note string
			Revision  json.Number
		}
	}
	if err := json.Unmarshal(s.etcdkit("list", "payments", "--state", "unknown", "-o", "json"), &all); err != nil {
		s.t.Fatal(err)
	}
	if len(all.Requests) != 1 || all.Requests[0].Note != order {
		s.t.Fatalf("%s: the list has %+v", order, all.Requests)
	}
	r := all.Requests[0]
	args := []string{"resolve", "payments", r.Ref, "--yes", "--revision", r.Revision.String()}
	s.mu.Lock()
	charged := s.book[order] > 0
	s.mu.Unlock()
	if charged {
		receipt := filepath.Join(s.t.TempDir(), "receipt.json")
		if err := os.WriteFile(receipt, []byte(fmt.Sprintf("{\"receipt\":\"receipt of %s\"}\n", order)), 0o600); err != nil {
			s.t.Fatal(err)
		}
		s.etcdkit(append(args, "--status", "201", "--header", "Content-Type: application/json", "--body", receipt)...)
		return
	}
	args = append(args, "--not-done")
	if !s.killed { // the server lives, and the operator knows that its handler has returned
		args = append(args, "--force")
	}
	s.etcdkit(args...)
}

// etcdkit runs the command.
func (s *shop) etcdkit(args ...string) []byte {
	cmd := exec.CommandContext(s.t.Context(), s.command, append([]string{"requests", "-N", "shop"}, args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+strings.Join(s.etcd.Endpoints(), ","))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("etcdkit %q: %v\n%s", args, err, &stderr)
	}
	return out
}
