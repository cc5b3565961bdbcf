#!/usr/bin/env bash
# Guess: a serializable read through etcd's grpc-proxy is as old as the member that answers it is behind: milliseconds.
# Really: the proxy answers it from a cache of its own, which has no age and no watch. Only a write through the same proxy,
#   or a linearizable read of exactly the same range, replaces the answer. After writes by other ways it returns the
#   first answer for as long as the proxy runs, with the revision of that time in the header: the only sign.
# Versions: go.etcd.io/etcd/server/v3 v3.6.16 and v3.7.3 (etcd and its grpc-proxy), client v3 of the same
# Source: server/proxy/grpcproxy/kv.go (Range), server/proxy/grpcproxy/cache/store.go (an LRU of 2048 answers).
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
cat > main.go.txt <<'G'
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"
)

func main() {
	if os.Getenv("SERVER") != "" {
		etcdmain.Main(os.Args)
		return
	}
	dir, at, peer, proxy := os.Args[1], free(), free(), free()
	start("--data-dir="+dir+"/data", "--listen-client-urls=http://"+at, "--advertise-client-urls=http://"+at, "--listen-peer-urls=http://"+peer,
		"--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer, "--log-level=error")
	direct := client(at)
	start("grpc-proxy", "start", "--endpoints="+at, "--listen-addr="+proxy, "--advertise-client-url="+proxy, "--data-dir="+dir+"/proxy")
	proxied := client(proxy)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	put := func(c *clientv3.Client, v string) int64 { r, err := c.Put(ctx, "k", v); check(err); return r.Header.Revision }
	get := func(opts ...clientv3.OpOption) (string, int64) {
		r, err := proxied.Get(ctx, "k", opts...)
		check(err)
		return string(r.Kvs[0].Value), r.Header.Revision
	}
	put(direct, "old")
	get(clientv3.WithSerializable())
	now := put(direct, "new")
	time.Sleep(10 * time.Second)
	stale, revision := get(clientv3.WithSerializable())
	fmt.Printf("10 s after %q was written at revision %d: a serializable read through the proxy returns %q, revision %d\n", "new", now, stale, revision)
	get(clientv3.WithPrefix()) // linearizable, of another range that has the key
	other, _ := get(clientv3.WithSerializable())
	get()
	same, _ := get(clientv3.WithSerializable())
	fmt.Printf("after a linearizable read of a range around it: %q; of the same key: %q\n", other, same)
	if stale != "old" || revision >= now || other != "old" || same != "new" {
		fmt.Println("CHANGED")
		end(1)
	}
	end(0)
}

var children []*exec.Cmd

func start(args ...string) {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "SERVER=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(c.Start())
	children = append(children, c)
}

func end(code int) {
	for _, c := range children {
		c.Process.Kill()
		c.Wait()
	}
	os.Exit(code)
}

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		end(2)
	}
}

func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer l.Close()
	return l.Addr().String()
}

// client returns a client of what answers there by now.
func client(at string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	check(err)
	for i := 0; ; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.Get(ctx, "up")
		cancel()
		if err == nil {
			return c
		}
		if i == 40 {
			check(err)
		}
		time.Sleep(250 * time.Millisecond)
	}
}
G
for version in v3.6.16 v3.7.3; do
	mkdir "$version"; cd "$version"; cp ../main.go.txt main.go
	go mod init probe >/dev/null 2>&1
	go get "go.etcd.io/etcd/client/v3@$version" "go.etcd.io/etcd/server/v3@$version" >/dev/null 2>&1
	go mod tidy >/dev/null 2>&1
	go list -m go.etcd.io/etcd/server/v3
	go build -o probe . && ./probe "$d/$version"
	cd ..
done
