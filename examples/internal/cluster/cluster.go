// Package cluster gives the examples an etcd to run on: the one that the user
// names, or an embedded one that lives as long as the program. It promises
// nothing to users of etcdkit, who bring their own client; TLS and passwords are
// left out to keep the examples short.
package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
)

// Flag parses the command line of a program whose only flag is -endpoints, and
// returns what it says. It ends the program with status 2 if there is more.
func Flag() (endpoints string) {
	flag.StringVar(&endpoints, "endpoints", "", "etcd endpoints, separated by commas (default: an embedded etcd)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(flag.CommandLine.Output(), "unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	return endpoints
}

// Open returns where etcd is to be found: at the endpoints, separated by commas,
// or in this process if there are none. The caller calls stop at the end, which
// ends an embedded etcd and removes its data. It returns an error if an embedded
// etcd cannot be started.
func Open(ctx context.Context, endpoints string) (found []string, stop func(), err error) {
	if found = split(endpoints); len(found) > 0 {
		return found, func() {}, nil
	}
	etcd, stop, err := start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return etcd.Endpoints(), stop, nil
}

// Dial returns a client of the etcd at these endpoints. It returns an error if an
// endpoint cannot be one; whether etcd answers shows with the first request.
func Dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// Client is Open and Dial in one. stop closes the client as well. Its errors are
// those of both.
func Client(ctx context.Context, endpoints string) (client *clientv3.Client, stop func(), err error) {
	found := split(endpoints)
	if len(found) == 0 {
		etcd, stop, err := start(ctx)
		if err != nil {
			return nil, nil, err
		}
		return etcd.Client(), stop, nil
	}
	if client, err = Dial(found); err != nil {
		return nil, nil, err
	}
	return client, func() { _ = client.Close() }, nil
}

func split(endpoints string) (found []string) {
	for e := range strings.SplitSeq(endpoints, ",") {
		if e = strings.TrimSpace(e); e != "" {
			found = append(found, e)
		}
	}
	return found
}

func start(ctx context.Context) (etcd *embedtest.Cluster, stop func(), err error) {
	if etcd, err = embedtest.New(ctx, nil); err != nil {
		return nil, nil, fmt.Errorf("start an embedded etcd: %w", err)
	}
	return etcd, func() { _ = etcd.Close() }, nil
}
