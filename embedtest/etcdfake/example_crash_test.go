package etcdfake_test

import (
	"context"
	"slices"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest/etcdfake"
	"github.com/etcdkit/etcdkit/idempotency"
)

// The process that began a payment crashes after it has charged the card. The client's
// second request executes the payment again, and the card is charged under the same key.
func crash(t *testing.T, etcd *etcdfake.Server) {
	var charged []string                                                                  // the keys that the provider of the cards has seen
	pay := func(s *idempotency.Store, crash func()) (idempotency.Result[string], error) { // the code under test
		key := idempotency.Key{Scope: "shop", Op: "POST /payments", ID: "order-17"}
		return idempotency.Do(t.Context(), s, key, "12 EUR", func(_ context.Context, a *idempotency.Attempt) (string, error) {
			charged = append(charged, a.ChildKey("charge"))
			crash()
			return "paid", nil
		})
	}
	client := etcd.NewClient()
	first, err := idempotency.NewStore(session(t, client), "payments", nil)
	ok(t, err)
	if _, err := pay(first, client.Stall); err == nil { // nothing of this process gets out any more
		t.Error("a process without a network recorded its result")
	}

	second, err := idempotency.NewStore(session(t, etcd.NewClient()), "payments", nil)
	ok(t, err)
	result, err := pay(second, func() {})
	ok(t, err)
	if result.Value != "paid" || len(charged) != 2 {
		t.Errorf("the second request returned %q after %d charges", result.Value, len(charged))
	}
	if keys := slices.Compact(charged); len(keys) != 1 {
		t.Errorf("the card was charged under the keys %q", keys)
	}
	again, err := pay(second, func() {})
	ok(t, err)
	if !again.Replayed || len(charged) != 2 {
		t.Error("the third request executed the payment")
	}
}

// A duplicate whose first attempt crashed.
func Example_crash() {
	example(func(t *testing.T) { // here: func TestCrash(t *testing.T)
		etcdfake.Test(t, crash)
	})
	// Output: PASS
}
