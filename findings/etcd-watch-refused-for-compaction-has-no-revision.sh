#!/usr/bin/env bash
# Guess: each response of a watch says at which revision the server is: a consumer that is cut off, or whose revision
#   is compacted, goes on after resp.Header.Revision.
# Really: the response that refuses a watch for a compacted revision has a header of revision 0, in 3.6 and 3.7: what goes on
#   from it asks for revision 1, which is compacted as well, and is refused for ever. CompactRevision says from where there is
#   history, and only a read at the present says what is there now. And since 3.7 WatchResponse.Header is a pointer: the zero value
#   that a closed channel gives has none, where 3.6 had a struct, so code that reads the revision without asking whether the
#   channel is closed compiles with both, and works with one of them.
# Versions: go.etcd.io/etcd client/v3 and server/v3, v3.6.16 and v3.7.3
# Source: server/storage/mvcc/watchable_store.go, syncWatchers and chooseAll (WatchResponse{WatchID, CompactRevision}), and
#   server/etcdserver/api/v3rpc/watch.go, newResponseHeader(wresp.Revision); client/v3/watch.go, type WatchResponse.
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
	"reflect"
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
	for range 10 {
		_, err = c.Put(ctx, "k", "v")
		must(err)
	}
	_, err = c.Compact(ctx, 9)
	must(err)
	var says []string
	rev := int64(3)
	for range 3 {
		events := c.Watch(ctx, "k", clientv3.WithRev(rev))
		resp := <-events
		says = append(says, fmt.Sprintf("from %d: canceled %t, compacted %d, header %d", rev, resp.Canceled, resp.CompactRevision, resp.Header.GetRevision()))
		rev = resp.Header.GetRevision() + 1
		closed, open := <-events
		header := reflect.ValueOf(closed).FieldByName("Header")
		if len(says) == 1 {
			says[0] += fmt.Sprintf("; then open %t, header nil %t", open, header.Kind() == reflect.Pointer && header.IsNil())
		}
	}
	got := strings.Join(says, "\n")
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
try() { # version, whether the header of a closed channel is nil
	mkdir "$1" && cd "$1" && cp ../main.go.txt main.go
	go mod init probe >/dev/null 2>&1
	go get "go.etcd.io/etcd/client/v3@$1" "go.etcd.io/etcd/server/v3@$1" >/dev/null 2>&1
	go mod tidy >/dev/null 2>&1
	go list -m go.etcd.io/etcd/server/v3
	go run . "$d/$1.data" "from 3: canceled true, compacted 9, header 0; then open false, header nil $2
from 1: canceled true, compacted 9, header 0
from 1: canceled true, compacted 9, header 0"
	cd ..
}
try v3.6.16 false
try v3.7.3 true
