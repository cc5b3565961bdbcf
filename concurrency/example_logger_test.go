package concurrency_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// One logger for the session and for etcd's client, in an outage of etcd. The client logs a
// warning for each failed attempt at a request, to standard error unless it has a Logger;
// raised to errors, it leaves the log to the session, which logs each loss once.
func ExampleSessionOptions_logger() {
	ctx := context.Background()
	etcd, err := embedtest.New(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()

	core, lines := observer.New(zapcore.InfoLevel)
	logger := zap.New(core)                                                                      // in a program: zap.NewProduction()
	client, err := etcd.Dial(ctx, &embedtest.ClientOptions{Configure: func(c *clientv3.Config) { // in a program: clientv3.New(c)
		c.Logger = logger.Named("etcd").WithOptions(zap.IncreaseLevel(zapcore.ErrorLevel))
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lost, renewed := make(chan struct{}, 10), make(chan struct{}, 10)
	sess, err := concurrency.NewSession(ctx, client.Client, "media", &concurrency.SessionOptions{
		Logger: logger.Named("etcdkit"),
		TTL:    3 * time.Second, Margin: time.Second, // here, for a short outage
		Hooks: testkit.Trace{
			SessionLost:    func(clientv3.LeaseID, error) { lost <- struct{}{} },
			SessionRenewed: func(clientv3.LeaseID) { renewed <- struct{}{} },
		}.Hooks(),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)

	client.Cut() // etcd is away
	<-lost
	client.Heal() // and is back
	<-renewed
	for _, line := range lines.FilterMessageSnippet("lease").All() {
		fmt.Println(line.Level.CapitalString(), line.LoggerName+":", line.Message)
	}
	// Output:
	// WARN etcdkit: the session lost its lease, and all permits, runs and attempts on it
	// INFO etcdkit: the session has a new lease
}
