#!/usr/bin/env bash
# Guess: a key on a lease without renewals is gone when the granted TTL has passed, or a little later: a wait for it is bounded
#   by the TTL.
# Really: a new leader of etcd begins the time of each lease anew, as each election and each moved leader does: the key of a
#   process that died lives for up to its TTL longer per election, without a bound if elections go on. LeaseTimeToLive then has
#   more left than before, and nothing in the answer says why. The remaining times that a leader hands on (checkpoints) are off by
#   default. So a lock of a dead process lasts for TTL times (1 + elections), and a deadline by the TTL has to allow for one.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16 and v3.7.3
# Source: server/lease/lessor.go, Promote: "refresh the expiries of all leases"; server/embed/config.go, lease checkpoints.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
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

const ttl = 10

func main() {
	members := start(os.Args[1], 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	at := func(leader bool) *embed.Etcd {
		for _, m := range members {
			if (m.Server.Leader() == m.Server.MemberID()) == leader {
				return m
			}
		}
		panic("no such member")
	}
	client := func(m *embed.Etcd) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Config().ListenClientUrls[0].Host}, Logger: zap.NewNop()})
		must(err)
		return c
	}
	leader, other := at(true), at(false)
	c := client(leader)
	l, err := c.Grant(ctx, ttl)
	must(err)
	_, err = c.Put(ctx, "k", "v", clientv3.WithLease(l.ID))
	must(err)
	granted := time.Now()
	time.Sleep(7 * time.Second)
	left := func() int64 {
		r, err := c.TimeToLive(ctx, l.ID)
		must(err)
		return r.TTL
	}
	before := left()
	_, err = c.MoveLeader(ctx, uint64(other.Server.MemberID()))
	must(err)
	for at(true) != other {
		time.Sleep(10 * time.Millisecond)
	}
	after := left()
	time.Sleep(time.Until(granted.Add((ttl + 3) * time.Second)))
	r, err := c.Get(ctx, "k")
	must(err)
	got := fmt.Sprintf("before: at most 3 s left: %t; with the new leader: at least 8 s left: %t; 3 s after the TTL the key is there: %t", before <= 3, after >= 8, len(r.Kvs) == 1)
	fmt.Println(got)
	if strings.Contains(got, "false") {
		fmt.Println("CHANGED", before, after)
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

// start runs so many members of one etcd in this process, on loopback.
func start(dir string, n int) (members []*embed.Etcd) {
	var all []*embed.Config
	var cluster []string
	for i := range n {
		c := embed.NewConfig()
		c.Name, c.LogLevel, c.LogOutputs = fmt.Sprint("m", i), "fatal", []string{"/dev/null"}
		c.Dir = dir + "/" + c.Name
		cu, pu := free(), free()
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{cu}, []url.URL{cu}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{pu}, []url.URL{pu}
		all, cluster = append(all, c), append(cluster, c.Name+"="+pu.String())
	}
	for _, c := range all {
		c.InitialCluster = strings.Join(cluster, ",")
		e, err := embed.StartEtcd(c)
		must(err)
		members = append(members, e)
	}
	for _, e := range members {
		<-e.Server.ReadyNotify()
	}
	return members
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
