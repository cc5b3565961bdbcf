// Package cluster provides the etcd on which the examples run: the one that the flag
// -endpoints names, or an embedded one that runs as long as the program. It is not for programs
// of users, which have a client of their own: it has no TLS and no passwords.
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

// Flag defines the flag -endpoints beside those that are defined already, parses the command line,
// and returns the value. If there are other arguments, Flag prints the usage and exits with status 2.
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

// Open returns the endpoints of etcd: the given ones, separated by commas, or those of an
// embedded etcd if there are none. stop stops an embedded etcd and removes its data. Open
// returns an error if an embedded etcd cannot be started.
func Open(ctx context.Context, endpoints string) (found []string, stop func(), err error) {
	found, _, stop, err = OpenMembers(ctx, endpoints, 1)
	return found, stop, err
}

// OpenMembers is Open for a program that stops members of etcd: an embedded etcd has n of them. own
// is nil for given endpoints, whose members the program must leave alone.
func OpenMembers(ctx context.Context, endpoints string, n int) (found []string, own *embedtest.Cluster, stop func(), err error) {
	if found = split(endpoints); len(found) > 0 {
		return found, nil, func() {}, nil
	}
	if own, stop, err = start(ctx, n); err != nil {
		return nil, nil, nil, err
	}
	return own.Endpoints(), own, stop, nil
}

// Dial returns a client for the endpoints. It returns an error for an invalid endpoint. The
// first request shows whether etcd is reachable.
func Dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// Client is Open and Dial in one call. stop also closes the client. Client returns an error
// where Open or Dial does.
func Client(ctx context.Context, endpoints string) (client *clientv3.Client, stop func(), err error) {
	found := split(endpoints)
	if len(found) == 0 {
		etcd, stop, err := start(ctx, 1)
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

func start(ctx context.Context, members int) (etcd *embedtest.Cluster, stop func(), err error) {
	if etcd, err = embedtest.New(ctx, &embedtest.Options{Members: members}); err != nil {
		return nil, nil, fmt.Errorf("start an embedded etcd: %w", err)
	}
	return etcd, func() { _ = etcd.Close() }, nil
}
