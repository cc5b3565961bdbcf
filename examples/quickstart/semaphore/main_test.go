package main

import (
	"context"
	"log"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

func Example() {
	if err := program.Run(context.Background(), cluster.Etcd{}, run); err != nil {
		log.Fatal(err)
	}
	// Output: 10 rendered, at most 3 at a time
}

// F14: with no etcd there, the program ends by itself and says why.
func TestWithoutEtcd(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits as long as the program does: 5 s")
	}
	progtest.WithoutEtcd(t, run)
}

// A program to copy from runs on an etcd that asks for a client certificate and a user.
func TestSecured(t *testing.T) {
	if testing.Short() {
		t.Skip("internal/examples/program has the same, in a program that does nothing else")
	}
	etcd := progtest.Etcd(t)
	t.Cleanup(func() { // before the keys are counted: the limit stays
		if _, err := etcd.Client().Delete(context.WithoutCancel(t.Context()), "/etcdkit/v1/quickstart/", clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	})
	p := progtest.New(t, etcd.Flags()...)
	p.Ends(0, "etcd at https://127.0.0.1:")
	if p.Out.String() != "10 rendered, at most 3 at a time\n" {
		t.Errorf("it wrote %q", &p.Out)
	}
}
