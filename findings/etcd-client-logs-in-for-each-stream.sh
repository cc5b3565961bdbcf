#!/usr/bin/env bash
# Guess: etcd's client logs in once, and again when a server refuses its token: a client whose token is valid opens a watch or a
#   keepalive stream without a login.
# Really: it logs in before each stream that it opens, with a valid token too: the first watch, each watch with other metadata
#   in its ctx, the stream of the keepalives, a snapshot, and each of them once more when the connection breaks. A login by password
#   keeps one of the server's processors busy for 65 ms (--bcrypt-cost 10), so a fleet that reconnects logs in by two streams
#   for each process. Unary calls log in only when the token is refused. Without Username and Password, as with the certificate
#   of a user, there is no login.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16 and v3.7.3
# Source: client/v3/retry_interceptor.go, streamClientInterceptor: "err := c.getToken(ctx)".
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
cat > main.go.txt <<'G'
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

func main() {
	e, ep := start(os.Args[1])
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{ep}, Logger: zap.NewNop()})
	must(err)
	_, err = admin.RoleAdd(ctx, "root")
	must(err)
	_, err = admin.UserAdd(ctx, "root", "secret")
	must(err)
	_, err = admin.UserGrantRole(ctx, "root", "root")
	must(err)
	_, err = admin.AuthEnable(ctx)
	must(err)

	var logins atomic.Int64
	count := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method == "/etcdserverpb.Auth/Authenticate" {
			logins.Add(1)
		}
		return call(ctx, method, req, reply, cc, opts...)
	}
	var c *clientv3.Client
	ok := true
	step := func(what string, want int64, do func()) {
		before := logins.Load()
		do()
		got := logins.Load() - before
		fmt.Printf("%-42s %d logins\n", what, got)
		ok = ok && got == want
	}
	watch := func(ctx context.Context, key string) { <-c.Watch(ctx, key, clientv3.WithCreatedNotify()) }
	step("New, and 10 reads", 1, func() {
		c, err = clientv3.New(clientv3.Config{Endpoints: []string{ep}, Username: "root", Password: "secret", Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count)}})
		must(err)
		for range 10 {
			_, err = c.Get(ctx, "k")
			must(err)
		}
	})
	step("the first watch", 1, func() { watch(ctx, "k") })
	step("a second watch on its stream", 0, func() { watch(ctx, "l") })
	step("a watch with WithRequireLeader", 1, func() { watch(clientv3.WithRequireLeader(ctx), "k") })
	step("KeepAlive of a lease", 1, func() {
		l, err := c.Grant(ctx, 60)
		must(err)
		kept, err := c.KeepAlive(ctx, l.ID)
		must(err)
		<-kept
	})
	step("10 reads", 0, func() {
		for range 10 {
			_, err := c.Get(ctx, "k")
			must(err)
		}
	})
	step("a snapshot", 1, func() {
		r, err := c.Snapshot(ctx)
		must(err)
		_, err = io.Copy(io.Discard, r)
		must(err)
	})
	if !ok {
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
try() { # version
	mkdir "$1" && cd "$1" && cp ../main.go.txt main.go
	go mod init probe >/dev/null 2>&1
	go get "go.etcd.io/etcd/client/v3@$1" "go.etcd.io/etcd/server/v3@$1" >/dev/null 2>&1
	go mod tidy >/dev/null 2>&1
	go list -m go.etcd.io/etcd/server/v3
	go run . "$d/$1.data"
	cd ..
}
try v3.6.16
try v3.7.3
