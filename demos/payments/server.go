package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/demos/internal/backend"
	"github.com/etcdkit/etcdkit/idempotency"
)

// server is one of the four servers.
type server struct {
	settings
	client *clientv3.Client
	sess   *concurrency.Session
	store  *idempotency.Store
	bank   *bank
	busy   sync.Map // orders that are being paid, for byFlag
}

// serverMain runs a server until ctx ends.
func serverMain(ctx context.Context, set settings) (err error) {
	s := &server{settings: set, bank: newBank(set.Provider)}
	var shut func()
	s.sess, s.client, shut, err = backend.Session(ctx, set.Place, &concurrency.SessionOptions{TTL: set.TTL, Margin: set.Margin, Owner: set.Name})
	if err != nil {
		return err
	}
	defer shut()
	if s.store, err = newStore(s.sess); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}", s.create)
	if err := s.guarded(mux); err != nil {
		return err
	}
	for name, way := range naiveWays {
		mux.HandleFunc("POST /pay/"+name+"/{order}", s.payNaively(way))
	}
	return backend.Serve(ctx, s.Sockets, mux)
}

// newStore returns the store of the servers and of the operator.
func newStore(sess *concurrency.Session) (*idempotency.Store, error) {
	return idempotency.NewStore(sess, "payments", &idempotency.Options{SingleTenant: true, Retain: 10 * time.Minute})
}

// order is an order in etcd.
type order struct {
	Amount int    `json:"amount"`
	Paid   string `json:"paid,omitempty"` // the provider's receipt

	revision int64
}

func (o order) String() string {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return string(raw)
}

// space returns the prefix of the orders, outside of etcdkit's own keys.
func (s settings) space() string { return "/payments/" + s.Namespace + "/" }

func (s settings) orderKey(name string) string { return s.space() + "order/" + name }

var errNoOrder = errors.New("no such order")

// load returns an order. It returns errNoOrder if there is none.
func (s *server) load(ctx context.Context, name string) (o order, err error) {
	resp, err := s.client.Get(ctx, s.orderKey(name))
	if err != nil {
		return o, err
	}
	if len(resp.Kvs) == 0 {
		return o, errNoOrder
	}
	o.revision = resp.Kvs[0].ModRevision
	return o, json.Unmarshal(resp.Kvs[0].Value, &o)
}

// create creates an order.
func (s *server) create(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		backend.Reply(w, http.StatusBadRequest, err.Error())
		return
	}
	if _, err := s.client.Put(r.Context(), s.orderKey(r.PathValue("order")), o.String()); err != nil {
		backend.Reply(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	backend.Reply(w, http.StatusCreated, o)
}
