package work

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// So much the floor sends at once: so many Txns, of so many parts.
const floorSenders, floorParts = 8, 64

// floor is new requests of one key each, by etcd's client and nothing else: the claim creates the key, and the outcome
// replaces it. Parts of different requests share a Txn. It is what etcd and its client cost at least: there is no
// session, no payload to compare, no retention, no context of an attempt, and no answer to a lost response.
type floor struct {
	client  *clientv3.Client
	waiting chan *floorPart
	stopped chan struct{}
	parts   sync.Pool
}

// floorPart is a write that waits for a Txn.
type floorPart struct {
	ifs  [1]clientv3.Cmp
	then [1]clientv3.Op
	done chan error
	rev  int64 // of the write
}

var errCondition = errors.New("a condition of the Txn is not met")

func newFloor(client *clientv3.Client) *floor {
	return &floor{
		client: client, waiting: make(chan *floorPart, floorSenders*floorParts), stopped: make(chan struct{}),
		parts: sync.Pool{New: func() any { return &floorPart{done: make(chan error, 1)} }},
	}
}

// serve sends what waits until f is stopped. When ctx ends, each part fails.
func (f *floor) serve(ctx context.Context) {
	batch, ops := make([]*floorPart, 0, floorParts), make([]clientv3.Op, 0, floorParts)
	for {
		select {
		case <-f.stopped:
			return
		case first := <-f.waiting:
			batch = append(batch[:0], first)
		}
		for more := true; more && len(batch) < floorParts; {
			select {
			case p := <-f.waiting:
				batch = append(batch, p)
			default:
				more = false
			}
		}
		f.send(ctx, batch, ops)
	}
}

// send sends some parts as one Txn.
func (f *floor) send(ctx context.Context, batch []*floorPart, ops []clientv3.Op) {
	txn := f.client.Txn(ctx)
	if len(batch) == 1 {
		txn = txn.If(batch[0].ifs[:]...).Then(batch[0].then[:]...)
	} else {
		for _, p := range batch {
			ops = append(ops, clientv3.OpTxn(p.ifs[:], p.then[:], nil))
		}
		txn = txn.Then(ops...)
	}
	r, err := txn.Commit()
	for i, p := range batch {
		met := err == nil && r.Succeeded
		if met && len(batch) > 1 {
			met = r.Responses[i].GetResponseTxn().GetSucceeded()
		}
		switch {
		case err != nil:
			p.done <- err
		case !met:
			p.done <- errCondition
		default:
			p.rev = r.Header.GetRevision()
			p.done <- nil
		}
	}
}

// request is the claim of a key and its outcome.
func (f *floor) request(key string, lease clientv3.OpOption) error {
	p := f.parts.Get().(*floorPart)
	defer f.parts.Put(p)
	p.ifs[0], p.then[0] = clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpPut(key, working, lease)
	f.waiting <- p
	if err := <-p.done; err != nil {
		return err
	}
	p.ifs[0], p.then[0] = clientv3.Compare(clientv3.ModRevision(key), "=", p.rev), clientv3.OpPut(key, outcome, lease)
	f.waiting <- p
	return <-p.done
}

// FloorRequests is new requests at the floor.
func (e *Env) FloorRequests(id string, inFlight int) measure.Cell {
	return measure.Cell{IDs: []string{id}, Run: func(ctx context.Context) ([]measure.Sample, error) {
		client, err := e.Etcd.Process(0)
		if err != nil {
			return nil, err
		}
		granted, err := client.Grant(ctx, 3600)
		if err != nil {
			return nil, err
		}
		f, lease := newFloor(client), clientv3.WithLease(granted.ID)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer close(f.stopped)
		for range floorSenders {
			wg.Go(func() { f.serve(ctx) })
		}
		root := requestRoot()
		s, err := e.requests(ctx, inFlight, func(_ context.Context, id string) error {
			return f.request(root+id, lease)
		})
		return []measure.Sample{s}, err
	}}
}
