package main

import (
	"context"
	"log"
	"testing"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

func Example() {
	if err := program.Run(context.Background(), cluster.Etcd{}, run); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 201 Created: charge 1, replayed: ""
	// 201 Created: charge 1, replayed: "true"
	// 201 Created: charge 1, replayed: "true"
	// charges: 1
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}
