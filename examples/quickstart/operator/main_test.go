package main

import (
	"context"
	"errors"
	"log"
	"strings"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

func Example() {
	if err := run(context.Background(), ""); err != nil {
		log.Fatal(err)
	}
	// Output:
	// charge: 1 of 3 held
	//   held by web-1: order-17 card
	// invoices is paused
	//   run by web-1: done
	// POST /payments of tenant 7: outcome unknown
	// web-1 was evicted: true
	// the customer's next try gets: charge 1
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	err := run(t.Context(), "127.0.0.1:1")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v, want an error that names what cannot be reached", err)
	}
}
