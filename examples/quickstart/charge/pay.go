package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/etcdkit/etcdkit/idempotency"
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

// errDeclined is the provider's final no. After any other error the charge may have been made.
var errDeclined = errors.New("the card was declined")

// pay charges under a key of its attempt.
func pay(w http.ResponseWriter, r *http.Request) {
	var p payment
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Order == "" || p.Cents <= 0 {
		http.Error(w, "order and cents are needed", http.StatusBadRequest)
		return
	}
	attempt, _ := idempotency.FromContext(r.Context())                 // there is one: neither FailOpen nor Optional is set
	receipt, err := charge(r.Context(), attempt.ChildKey("charge"), p) // one key for each thing that is done once
	switch {
	case errors.Is(err, errDeclined):
		http.Error(w, err.Error(), http.StatusPaymentRequired) // recorded
	case err != nil:
		http.Error(w, err.Error(), http.StatusGatewayTimeout) // not recorded: the next attempt asks with the same key
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"receipt": receipt})
	}
}

// bank calls the provider. It follows no redirect: that is an answer, and no receipt.
var bank = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// charge has the provider charge a payment, once for each key. The SDK of a provider has a parameter for the key.
func charge(ctx context.Context, key string, p payment) (receipt string, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *provider, bytes.NewReader(text))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := bank.Do(req)
	if err != nil {
		return "", fmt.Errorf("the provider did not answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	switch {
	case err != nil:
		return "", fmt.Errorf("the provider's answer broke off: %w", err)
	case resp.StatusCode == http.StatusPaymentRequired:
		return "", errDeclined
	case resp.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the provider answered %s", resp.Status)
	}
	return string(body), nil
}
