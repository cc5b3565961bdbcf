package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/etcdkit/etcdkit/internal/examples/program"
)

// bank is a client of the provider. The servers call charge. The parent calls the rest, which
// controls the demo, except for book: any provider has a list of its charges.
type bank struct {
	url  string
	http *http.Client
}

// newBank returns a client without kept connections: with them, net/http retries by itself.
func newBank(url string) *bank {
	return &bank{url, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
}

// The two ways in which charging fails.
var (
	errDeclined = errors.New("the provider is out of service: nothing was charged")
	errNoAnswer = errors.New("the provider has not answered: it may have charged")
)

// tries is the greatest number of calls of the provider for one payment.
const tries = 3

// charge charges an order. With a key, all calls charge once, so charge repeats a call whose answer
// is lost. Without a key, it repeats only a call that has charged nothing. It returns errDeclined
// or errNoAnswer.
func (b *bank) charge(ctx context.Context, in charge, key string) (receipt string, err error) {
	for n := range tries {
		if n > 0 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return "", errors.Join(err, ctx.Err())
			}
		}
		if err = b.do(ctx, http.MethodPost, "/charges", key, in, &receipt); err == nil {
			return receipt, nil
		}
		if errors.Is(err, errNoAnswer) && key == "" {
			break
		}
	}
	return "", err
}

// plan sets what the provider does for an order. Call it before the order's first charge.
func (b *bank) plan(ctx context.Context, p plan) error {
	return b.do(ctx, http.MethodPost, "/plans", "", p, nil)
}

// held waits until the provider holds a call, and returns the server that made the call.
func (b *bank) held(ctx context.Context, order string) (server string, err error) {
	err = b.do(ctx, http.MethodGet, "/held/"+order, "", nil, &server)
	return server, err
}

// release ends the hold.
func (b *bank) release(ctx context.Context, order string) error {
	return b.do(ctx, http.MethodPost, "/release/"+order, "", nil, nil)
}

func (b *bank) book(ctx context.Context, order string) (all book, err error) {
	err = b.do(ctx, http.MethodGet, "/books/"+order, "", nil, &all)
	return all, err
}

// closedBook waits until no call for the order is in progress.
func (b *bank) closedBook(ctx context.Context, order string) (all book, err error) {
	for {
		if all, err = b.book(ctx, order); err != nil || all.Open == 0 {
			return all, err
		}
		if program.Sleep(ctx, 20*time.Millisecond) != nil {
			return all, context.Cause(ctx)
		}
	}
}

func (b *bank) do(ctx context.Context, method, path, key string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, body)
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable:
		return errDeclined
	case resp.StatusCode >= 300:
		return fmt.Errorf("call the provider: status %s", resp.Status)
	case out == nil:
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return nil
}
