package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
)

// provider is a payment provider. A call takes 100 to 500 ms. Some calls fail: with 503, after which
// nothing is charged; or, among calls with a key, by an answer that is lost after the charge. All
// calls with one key charge once. Each call without a key charges.
type provider struct {
	mu     sync.Mutex
	orders map[string]*account
	serial int
}

// account is the provider's state of an order.
type account struct {
	book
	plan
	keys     map[string]string // receipts
	held     chan struct{}     // closed when a call is held
	server   string            // made the held call
	released chan struct{}     // closed to end the hold

	lossy bool // the answer to the first call with a key that charges is lost
}

// book is the provider's public record of an order.
type book struct {
	Calls    int      `json:"calls"`
	Charges  int      `json:"charges"`
	Open     int      `json:"open"` // calls in progress
	Receipts []string `json:"receipts"`
}

// plan is what happens to an order; without a plan, failures decides.
type plan struct {
	Order string `json:"order"`
	Fail  int    `json:"fail"` // that many calls get 503
	Hold  string `json:"hold"` // the stage at which the first call is held

	Takes time.Duration `json:"takes"` // each call; 0 for 100 to 500 ms
}

// The stages at which a call is held.
const (
	holdAsked   = "asked"   // before the charge, which is omitted if the caller disconnects
	holdCharged = "charged" // after the charge, before the answer
)

// charge is a request to the provider.
type charge struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
	Server string `json:"server"`
}

func newProvider() *provider { return &provider{orders: map[string]*account{}} }

func (p *provider) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("GET /books/{order}", func(w http.ResponseWriter, r *http.Request) {
		a := p.account(r.PathValue("order"))
		p.mu.Lock()
		defer p.mu.Unlock()
		backend.Reply(w, http.StatusOK, a.book)
	})
	mux.HandleFunc("POST /plans", p.plan)
	mux.HandleFunc("GET /held/{order}", func(w http.ResponseWriter, r *http.Request) {
		a := p.account(r.PathValue("order"))
		select {
		case <-a.held:
			backend.Reply(w, http.StatusOK, a.server)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /release/{order}", func(w http.ResponseWriter, r *http.Request) {
		a := p.account(r.PathValue("order"))
		p.mu.Lock()
		defer p.mu.Unlock()
		a.Hold = ""
		select {
		case <-a.released:
		default:
			close(a.released)
		}
	})
	return mux
}

func (p *provider) account(order string) *account {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.orders[order]
	if a == nil {
		a = &account{keys: map[string]string{}, held: make(chan struct{}), released: make(chan struct{})}
		a.Fail, a.lossy = failures(order)
		p.orders[order] = a
	}
	return a
}

// failures returns the failures of an order without a plan. They depend on its name only, so that
// each run has the same ones.
func failures(order string) (fail int, lossy bool) {
	h := fnv.New32a()
	h.Write([]byte(order))
	switch h.Sum32() >> 8 % 4 {
	case 0:
		return 1, false
	case 1:
		return 0, true
	}
	return 0, false
}

func (p *provider) plan(w http.ResponseWriter, r *http.Request) {
	var in plan
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		backend.Reply(w, http.StatusBadRequest, err.Error())
		return
	}
	a := p.account(in.Order)
	p.mu.Lock()
	defer p.mu.Unlock()
	a.plan, a.lossy = in, false
}

func (p *provider) charge(w http.ResponseWriter, r *http.Request) {
	var in charge
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		backend.Reply(w, http.StatusBadRequest, err.Error())
		return
	}
	a := p.account(in.Order)
	p.mu.Lock()
	a.Calls++
	a.Open++
	takes := cmp.Or(a.Takes, 100*time.Millisecond+rand.N(400*time.Millisecond))
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		a.Open--
		p.mu.Unlock()
	}()
	time.Sleep(takes)
	if !p.pass(a, holdAsked, in.Server, r) {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	receipt, lost, ok := p.take(a, key)
	if !ok {
		backend.Reply(w, http.StatusServiceUnavailable, "out of service; nothing was charged")
		return
	}
	p.pass(a, holdCharged, in.Server, r)
	if lost {
		panic(http.ErrAbortHandler)
	}
	backend.Reply(w, http.StatusCreated, receipt)
}

// pass holds the call if the plan says so. It returns false if the caller has disconnected
// meanwhile.
func (p *provider) pass(a *account, stage, server string, r *http.Request) bool {
	p.mu.Lock()
	hold := a.Hold == stage
	if hold {
		a.Hold, a.server = "", server
		close(a.held)
	}
	p.mu.Unlock()
	if !hold {
		return true
	}
	select {
	case <-a.released:
		return true
	case <-r.Context().Done():
		return false
	}
}

// take charges, unless the call fails or the key has a charge. lost says that the answer must not
// arrive.
func (p *provider) take(a *account, key string) (receipt string, lost, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := a.keys[key]; key != "" && known != "" {
		return known, false, true
	}
	if a.Fail > 0 {
		a.Fail--
		return "", false, false
	}
	p.serial++
	a.Charges++
	receipt = fmt.Sprintf("charge-%04d", p.serial)
	a.Receipts = append(a.Receipts, receipt)
	a.keys[key] = receipt
	return receipt, key != "" && a.lossy, true
}
