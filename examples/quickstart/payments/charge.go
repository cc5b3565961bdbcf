package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// The ways in which a charge fails and is known not to have been made. After any other error it may have
// been made.
var (
	errDeclined = errors.New("the card was declined")
	errNotSent  = errors.New("the provider could not be reached, and nothing was charged")
)

// cards calls the provider, on a new connection each time: net/http repeats what fails on an old one. It follows no
// redirect: that is an answer, and the error of the request that follows it would say nothing of the charge.
var cards = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// charge has the provider charge a payment. The provider takes no idempotency keys.
func charge(ctx context.Context, p payment) (receipt string, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotSent, err)
	}
	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *provider, bytes.NewReader(text))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotSent, err)
	}
	resp, err := cards.Do(req)
	var failed *net.OpError
	switch {
	case errors.As(err, &failed) && failed.Op == "dial":
		return "", fmt.Errorf("%w: %w", errNotSent, err)
	case err != nil:
		return "", fmt.Errorf("the provider did not answer in time: %w", err)
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
