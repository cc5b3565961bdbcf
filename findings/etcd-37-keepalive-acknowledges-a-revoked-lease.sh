#!/usr/bin/env bash
# Guess: a keepalive that etcd acknowledges with a full TTL shows that the lease was not revoked before it.
# Really: in 3.7 the leader acknowledges by the leases that it has applied so far (feature gate FastLeaseKeepAlive,
#   on by default). A revocation that is committed and waits behind a slow entry is not seen: the keepalive returns the full
#   TTL at once, and the lease ends a moment later. 3.6 waits until all that is committed is applied, and says that
#   the lease is not found. So in 3.7 an acknowledgement proves nothing of revocations by others; what expires
#   by itself is not concerned, since an expired lease is not renewed before its revocation is settled.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16 and v3.7.3
# Source: server/etcdserver/v3_server.go, LeaseRenew; server/features/etcd_features.go.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS=-mod=mod GOWORK=off
cat > main.go.txt <<'G'
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	e, ep := start(os.Args[1])
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{ep}, Logger: zap.NewNop(), MaxCallRecvMsgSize: 1 << 30})
	must(err)
	value := strings.Repeat("x", 100)
	for i := 0; i < 100_000; i += 100 {
		var puts []clientv3.Op
		for k := i; k < i+100; k++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("k%06d", k), value))
		}
		_, err := c.Txn(ctx).Then(puts...).Commit()
		must(err)
	}
	l, err := c.Grant(ctx, 600)
	must(err)

	// An entry that takes long to apply: a put, and many sorted reads after it.
	slow := []clientv3.Op{clientv3.OpPut("slow", "")}
	for range 6 {
		slow = append(slow, clientv3.OpGet("k", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortDescend), clientv3.WithLimit(1)))
	}
	applied := make(chan time.Duration)
	begin := time.Now()
	go func() { _, err := c.Txn(ctx).Then(slow...).Commit(); must(err); applied <- time.Since(begin) }()
	time.Sleep(100 * time.Millisecond)
	revoked := make(chan time.Duration)
	go func() { _, err := c.Revoke(ctx, l.ID); must(err); revoked <- time.Since(begin) }()
	time.Sleep(100 * time.Millisecond)

	kept, err := c.KeepAliveOnce(ctx, l.ID)
	at := time.Since(begin)
	slowFor, gone := <-applied, <-revoked
	says := "not found"
	if err == nil {
		says = fmt.Sprintf("TTL %d", kept.TTL)
	} else if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		panic(err)
	}
	fmt.Printf("the slow entry took %d ms; keepalive answered after %d ms: %s; the revocation after %d ms\n", slowFor.Milliseconds(), at.Milliseconds(), says, gone.Milliseconds())
	if want := os.Args[2]; strings.Fields(says)[0] != want || want == "TTL" && at > gone {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func free() url.URL {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// start runs an etcd member in this process, on loopback.
func start(dir string) (*embed.Etcd, string) {
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs = dir, "fatal", []string{"/dev/null"}
	cu, pu := free(), free()
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{cu}, []url.URL{cu}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{pu}, []url.URL{pu}
	c.InitialCluster = c.Name + "=" + pu.String()
	e, err := embed.StartEtcd(c)
	must(err)
	<-e.Server.ReadyNotify()
	return e, c.ListenClientUrls[0].Host
}
G
try() { # version, expected answer
	mkdir "$1" && cd "$1" && cp ../main.go.txt main.go
	go mod init probe >/dev/null 2>&1
	go get "go.etcd.io/etcd/client/v3@$1" "go.etcd.io/etcd/server/v3@$1" >/dev/null 2>&1
	go mod tidy >/dev/null 2>&1
	go list -m go.etcd.io/etcd/server/v3
	go run . "$d/$1.data" "$2"
	cd ..
}
try v3.6.16 not
try v3.7.3 TTL
