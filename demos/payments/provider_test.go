package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
)

// startProvider starts one in this process.
func startProvider(t *testing.T) *bank {
	t.Helper()
	srv := httptest.NewServer(newProvider().handler())
	t.Cleanup(srv.Close)
	return newBank(srv.URL)
}

// The provider is what the experiment is measured with.
func TestProviderKeepsBooks(t *testing.T) {
	t.Parallel()
	b := startProvider(t)
	for name, x := range map[string]struct {
		keys []string // of the payments
		fail int
		errs []error
		want book
	}{
		"without keys":     {[]string{"", ""}, 0, []error{nil, nil}, book{Calls: 2, Charges: 2}},
		"with one key":     {[]string{"k", "k", "k"}, 0, []error{nil, nil, nil}, book{Calls: 3, Charges: 1}},
		"with two":         {[]string{"k", "l", "k"}, 0, []error{nil, nil, nil}, book{Calls: 3, Charges: 2}},
		"with and without": {[]string{"k", "", "k"}, 0, []error{nil, nil, nil}, book{Calls: 3, Charges: 2}},
		"one failure":      {[]string{""}, 1, []error{nil}, book{Calls: 2, Charges: 1}},
		"too many":         {[]string{"", ""}, tries, []error{errDeclined, nil}, book{Calls: tries + 1, Charges: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, order := t.Context(), strings.ReplaceAll(name, " ", "-")
			if err := b.plan(ctx, plan{Order: order, Fail: x.fail}); err != nil {
				t.Fatal(err)
			}
			receipts := map[string]string{}
			for i, key := range x.keys {
				receipt, err := b.charge(ctx, charge{Order: order, Amount: 1}, key)
				if !errors.Is(err, x.errs[i]) {
					t.Errorf("payment %d: %v, want %v", i, err, x.errs[i])
				}
				if known := receipts[key]; key != "" && known != "" && known != receipt {
					t.Errorf("payment %d has got %s, the one before with that key %s", i, receipt, known)
				}
				receipts[key] = receipt
			}
			got, err := b.closedBook(ctx, order)
			if err != nil || got.Calls != x.want.Calls || got.Charges != x.want.Charges || len(got.Receipts) != got.Charges {
				t.Errorf("%+v, %v, want %+v", got, err, x.want)
			}
		})
	}
}

// A caller that disconnects before the charge is not charged; after it, the charge stays.
func TestProviderHoldsCalls(t *testing.T) {
	t.Parallel()
	b := startProvider(t)
	for stage, charges := range map[string]int{holdAsked: 0, holdCharged: 1} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			if err := b.plan(ctx, plan{Order: stage, Hold: stage}); err != nil {
				t.Fatal(err)
			}
			calling, leave := context.WithCancel(ctx)
			gone := make(chan error, 1)
			go func() {
				_, err := b.charge(calling, charge{Order: stage, Amount: 1, Server: "me"}, "")
				gone <- err
			}()
			if who, err := b.held(ctx, stage); err != nil || who != "me" {
				t.Fatal(who, err)
			}
			leave()
			if err := <-gone; !errors.Is(err, errNoAnswer) {
				t.Error(err)
			}
			if got, err := b.closedBook(ctx, stage); err != nil || got.Calls != 1 || got.Charges != charges {
				t.Errorf("%+v, %v, want %d charges", got, err, charges)
			}
		})
	}
}

// Some orders meet failures without any plan: with a key, one answer is lost after the charge.
func TestProviderFailsSometimes(t *testing.T) {
	t.Parallel()
	b := startProvider(t)
	var failing, lossy, kind string
	for n := 'a'; failing == "" || lossy == "" || kind == ""; n++ {
		switch fail, loses := failures(string(n)); {
		case fail > 0:
			failing = string(n)
		case loses:
			lossy = string(n)
		default:
			kind = string(n)
		}
	}
	for order, want := range map[string]book{failing: {Calls: 2, Charges: 1}, lossy: {Calls: 2, Charges: 1}, kind: {Calls: 1, Charges: 1}} {
		if _, err := b.charge(t.Context(), charge{Order: order, Amount: 1}, "key"); err != nil {
			t.Error(err)
		}
		if got, err := b.closedBook(t.Context(), order); err != nil || got.Calls != want.Calls || got.Charges != want.Charges {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
}
