#!/usr/bin/env bash
# Guess: a read with WithKeysOnly leaves out the value alone: a client that wants to know which keys are on its lease saves the
#   values. It was so up to 3.6.
# Really: 3.7 answers such a read from the index in memory, which has no leases: Lease is 0 for each key, as if it had none,
#   without an error. The same read in a Txn, of one key or of a range, likewise. Sorted by value the lease is there: then the
#   values are read. So code that compares Lease with its own takes its keys for those of others, or for keys that no lease ends.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16 and v3.7.3
# Source: server/storage/mvcc/kvstore_txn.go, rangeKeys (FastKeysOnly); etcd-io/etcd#21791, #22209.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS=-mod=mod GOWORK=off
cat > main.go.txt <<'G'
package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	e, ep := start(os.Args[1])
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{ep}, Logger: zap.NewNop()})
	must(err)
	l, err := c.Grant(ctx, 600)
	must(err)
	_, err = c.Put(ctx, "key", "value", clientv3.WithLease(l.ID))
	must(err)
	var says []string
	add := func(how string, lease int64) {
		has := "0"
		if lease == int64(l.ID) {
			has = "its lease"
		}
		says = append(says, how+": "+has)
	}
	for _, read := range []struct {
		how  string
		opts []clientv3.OpOption
	}{
		{"with the value", nil},
		{"keys only", []clientv3.OpOption{clientv3.WithKeysOnly()}},
		{"of a range", []clientv3.OpOption{clientv3.WithKeysOnly(), clientv3.WithPrefix()}},
		{"sorted by value", []clientv3.OpOption{clientv3.WithKeysOnly(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend)}},
	} {
		r, err := c.Get(ctx, "key", read.opts...)
		must(err)
		add(read.how, r.Kvs[0].Lease)
	}
	r, err := c.Txn(ctx).Then(clientv3.OpGet("key", clientv3.WithKeysOnly())).Commit()
	must(err)
	add("in a Txn", r.Responses[0].GetResponseRange().Kvs[0].Lease)
	got := strings.Join(says, "; ")
	fmt.Println(got)
	if got != os.Args[2] {
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
try v3.6.16 'with the value: its lease; keys only: its lease; of a range: its lease; sorted by value: its lease; in a Txn: its lease'
try v3.7.3 'with the value: its lease; keys only: 0; of a range: 0; sorted by value: its lease; in a Txn: 0'
