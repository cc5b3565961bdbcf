#!/usr/bin/env bash
# Guess: etcd checks the permissions for what a Txn does: its conditions, and the operations of the branch that they choose.
# Really: it checks all operations of both branches, and of nested Txns, before it looks at the conditions. A user that may only read
#   gets "permission denied" for a Txn whose conditions choose a branch of reads, if the other one has a put. So "create it
#   if it is absent, read it otherwise" needs write permission also where the key exists. The other way round it is of use: a
#   Txn with a condition that is never met shows whether a user may write a key, and writes nothing.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16 and v3.7.3
# Source: server/etcdserver/apply/apply_auth.go, checkTxnPermission: rt.Compare, rt.Success and rt.Failure.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
cat > main.go.txt <<'G'
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

func main() {
	e, ep := start(os.Args[1])
	defer e.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	open := func(user string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{ep}, Username: user, Password: user, Logger: zap.NewNop()})
		must(nil, err)
		return c
	}
	admin := open("")
	must(admin.Put(ctx, "a/k", "v"))
	must(admin.RoleAdd(ctx, "root"))
	must(admin.RoleAdd(ctx, "reader"))
	must(admin.RoleGrantPermission(ctx, "reader", "a/", clientv3.GetPrefixRangeEnd("a/"), clientv3.PermissionType(clientv3.PermRead)))
	for user, role := range map[string]string{"root": "root", "ada": "reader"} {
		must(admin.UserAdd(ctx, user, user))
		must(admin.UserGrantRole(ctx, user, role))
	}
	must(admin.AuthEnable(ctx))
	ada, root := open("ada"), open("root")

	exists, absent := clientv3.Compare(clientv3.CreateRevision("a/k"), ">", 0), clientv3.Compare(clientv3.CreateRevision("a/k"), "=", 0)
	get, put := clientv3.OpGet("a/k"), clientv3.OpPut("a/k", "changed")
	ok := true
	for _, try := range []struct {
		what   string
		txn    clientv3.Txn
		denied bool
	}{
		{"the key exists: read it", ada.Txn(ctx).If(exists).Then(get), false},
		{"the key exists: read it; else put it", ada.Txn(ctx).If(exists).Then(get).Else(put), true},
		{"the key is absent: put it; else read it", ada.Txn(ctx).If(absent).Then(put).Else(get), true},
		{"the same, the put in a nested Txn", ada.Txn(ctx).If(absent).Then(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)).Else(get), true},
		{"the same by a user that may write", root.Txn(ctx).If(absent).Then(put).Else(get), false},
	} {
		_, err := try.txn.Commit()
		fmt.Printf("%-42s %v\n", try.what, err)
		if try.denied != errors.Is(err, rpctypes.ErrPermissionDenied) || !try.denied && err != nil {
			ok = false
		}
	}
	now, err := root.Get(ctx, "a/k")
	must(now, err)
	if !ok || string(now.Kvs[0].Value) != "v" || now.Kvs[0].Version != 1 {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}

func must(_ any, err error) {
	if err != nil {
		panic(err)
	}
}

func free() url.URL {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(l, err)
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
	must(e, err)
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
