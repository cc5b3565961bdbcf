package aesgcm_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/aesgcm"
)

// Results are encrypted before they are stored: etcd, its backups and who may read the namespace have no
// receipt in the clear.
func ExampleNew() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := embedtest.New(ctx, nil) // here: your etcd
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	sess, err := concurrency.NewSession(ctx, etcd.Client(), "billing", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer sess.Close(ctx)

	os.Setenv("RESULTS_KEY", "cGFzc3BocmFzZXMgYXJlIG5vIGtleXM6IHVzZSByYW4=") // here: your store of secrets; head -c 32 /dev/urandom | base64
	key, err := base64.StdEncoding.DecodeString(os.Getenv("RESULTS_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	codec, err := aesgcm.New("2026-01", key)
	if err != nil {
		log.Fatal(err)
	}
	st, err := idempotency.NewStore(sess, "payments", &idempotency.Options{Codec: codec, SingleTenant: true})
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		res, err := idempotency.Do(ctx, st, idempotency.Key{Op: "POST /payments", ID: "K-17"}, nil, func(context.Context, *idempotency.Attempt) (string, error) {
			return "receipt 4711", nil
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Value, "replayed:", res.Replayed)
	}
	stored, err := etcd.Client().Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		log.Fatal(err)
	}
	for _, kv := range stored.Kvs {
		if strings.Contains(string(kv.Value), "4711") {
			fmt.Println("in the clear:", string(kv.Key))
		}
	}
	// Output:
	// receipt 4711 replayed: false
	// receipt 4711 replayed: true
}
