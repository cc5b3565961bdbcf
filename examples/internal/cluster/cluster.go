// Package cluster gives the examples an etcd to run on: the one that the user
// names, or an embedded one that lives as long as the program. It promises
// nothing to users of etcdkit, who bring their own client; TLS and passwords are
// left out to keep the examples short.
package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/embedtest"
)

// Open returns where etcd is to be found: at the endpoints, separated by commas,
// or in this process if there are none. The caller calls stop at the end, which
// ends an embedded etcd and removes its data. It returns an error if an embedded
// etcd cannot be started.
func Open(ctx context.Context, endpoints string) (found []string, stop func(), err error) {
	for e := range strings.SplitSeq(endpoints, ",") {
		if e = strings.TrimSpace(e); e != "" {
			found = append(found, e)
		}
	}
	if len(found) > 0 {
		return found, func() {}, nil
	}
	etcd, err := embedtest.New(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("start an embedded etcd: %w", err)
	}
	return etcd.Endpoints(), func() { _ = etcd.Close() }, nil
}

// Dial returns a client of the etcd at these endpoints. It returns an error if an
// endpoint cannot be one; whether etcd answers shows with the first request.
func Dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// Client is Open and Dial in one. stop closes the client as well. Its errors are
// those of both.
func Client(ctx context.Context, endpoints string) (client *clientv3.Client, stop func(), err error) {
	found, end, err := Open(ctx, endpoints)
	if err != nil {
		return nil, nil, err
	}
	if client, err = Dial(found); err != nil {
		end()
		return nil, nil, err
	}
	return client, func() { _ = client.Close(); end() }, nil
}
