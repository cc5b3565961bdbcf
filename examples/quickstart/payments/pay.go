package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

type payment struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// order is what an operator knows a payment by.
func order(_ *http.Request, body []byte) string {
	var p payment
	_ = json.Unmarshal(body, &p)
	return p.Order
}

// pay charges. It is the handler of a service without keys, but for one line.
func pay(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Order == "" || p.Cents <= 0 {
		http.Error(w, "order and cents are needed", http.StatusBadRequest)
		return
	}
	receipt, err := charge(r.Context(), p)
	switch {
	case errors.Is(err, errDeclined):
		http.Error(w, err.Error(), http.StatusPaymentRequired) // a final no, which is recorded
	case errors.Is(err, errNotSent): // as for a concurrency.ErrFull, of a limit around charge
		idemhttp.Decide(r.Context(), idempotency.Forget, http.StatusServiceUnavailable) // nothing was done
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusGatewayTimeout) // it may have charged: the outcome is unknown
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"receipt": receipt})
	}
}
