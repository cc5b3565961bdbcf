package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// The guards, by the second last element of the path. A service has one of them; which one depends
// on its clients and on its provider.
const (
	byNoWait   = "no-wait"  // a duplicate gets 409; a lost payment is left to an operator
	byWait     = "wait"     // a duplicate gets the response, when there is one
	byTakeOver = "takeover" // the same, and the provider takes keys: a lost payment executes again
)

// patience is how long a duplicate waits.
const patience = 30 * time.Second

// guards are the settings of the middlewares.
var guards = map[string]struct {
	onLost idempotency.LostPolicy
	wait   time.Duration
	keyed  bool // the provider takes keys
}{
	byNoWait:   {onLost: idempotency.Refuse},
	byWait:     {onLost: idempotency.Refuse, wait: patience},
	byTakeOver: {onLost: idempotency.TakeOver, wait: patience, keyed: true},
}

// guarded serves /pay behind each of the guards.
func (s *server) guarded(mux *http.ServeMux) error {
	for name, g := range guards {
		once, err := idemhttp.Middleware(s.store, &idemhttp.Options{
			Wait: g.wait,
			Each: func(*http.Request) []idempotency.Option { return []idempotency.Option{idempotency.OnLost(g.onLost)} },
			Note: func(r *http.Request, _ []byte) string { return r.URL.Path }, // by which the operator finds the order
		})
		if err != nil {
			return err
		}
		mux.Handle("POST /pay/"+name+"/{order}", once(s.pay(g.keyed)))
	}
	return nil
}

// payment is the body of a request, and receipt that of its response.
type payment struct {
	Amount int `json:"amount"`
}

type receipt struct {
	Order   string `json:"order"`
	Amount  int    `json:"amount"`
	Charge  string `json:"charge"`
	Server  string `json:"server"`
	Attempt int    `json:"attempt,omitempty"`
}

// pay returns the handler behind a guard. It is the handler of a service without keys, except for
// its calls of the attempt. keyed says whether the provider takes keys.
func (s *server) pay(keyed bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, name := r.Context(), r.PathValue("order")
		a, _ := idempotency.FromContext(ctx)
		stop := context.AfterFunc(idemhttp.Client(ctx), func() { backend.Emit(evHungUp, name) })
		defer stop()
		var in payment
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			backend.Reply(w, http.StatusBadRequest, err.Error())
			return
		}
		o, err := s.load(ctx, name)
		switch {
		case errors.Is(err, errNoOrder):
			backend.Reply(w, http.StatusNotFound, err.Error())
			return
		case err != nil:
			idemhttp.Decide(ctx, idempotency.Forget, http.StatusServiceUnavailable) // nothing was done
			backend.Reply(w, http.StatusServiceUnavailable, err.Error())
			return
		case in.Amount != o.Amount:
			backend.Reply(w, http.StatusBadRequest, "another amount")
			return
		}
		key := ""
		if keyed {
			key = a.ChildKey("charge")
		}
		o.Paid, err = s.bank.charge(ctx, charge{name, in.Amount, s.Name}, key)
		switch {
		case errors.Is(err, errDeclined):
			idemhttp.Decide(ctx, idempotency.Forget, http.StatusBadGateway) // it has charged nothing
			fallthrough
		case err != nil:
			backend.Reply(w, http.StatusBadGateway, err.Error()) // it may have charged: with Refuse an operator has to find out
			return
		}
		a.Attach(nil, clientv3.OpPut(s.orderKey(name), o.String())) // with the response, or not at all
		backend.Reply(w, http.StatusCreated, receipt{name, in.Amount, o.Paid, s.Name, a.Attempt()})
	}
}
