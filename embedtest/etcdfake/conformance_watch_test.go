package etcdfake_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watch is a watch on one side, and what it has seen.
type watch struct {
	key     string
	deletes bool // it receives deletes only
	from    int64
	events  clientv3.WatchChan
	cancel  context.CancelFunc
	end     string // how it has ended
}

// watch begins a watch on both sides. What it sees is compared when it is drained.
func (p *pair) watch(t failer, r *pb.WatchCreateRequest) {
	p.real.watch(t, r)
	p.fake.watch(t, r)
}

func (s *side) watch(t failer, r *pb.WatchCreateRequest) {
	ctx, cancel := context.WithCancel(context.Background())
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if end := string(r.RangeEnd); end != "" {
		opts = append(opts, clientv3.WithRange(end))
	}
	w := &watch{key: string(r.Key), cancel: cancel}
	if r.StartRevision > 0 {
		w.from = r.StartRevision + s.offset
		opts = append(opts, clientv3.WithRev(w.from))
	}
	if r.PrevKv {
		opts = append(opts, clientv3.WithPrevKV())
	}
	for _, f := range r.Filters {
		if f == pb.WatchCreateRequest_NOPUT {
			w.deletes = true
			opts = append(opts, clientv3.WithFilterPut())
		} else {
			opts = append(opts, clientv3.WithFilterDelete())
		}
	}
	w.events = s.client.Watch(ctx, w.key, opts...)
	s.watches = append(s.watches, w)
	select {
	case first := <-w.events:
		if !first.Created {
			w.end = fmt.Sprintf("refused: canceled %v, %v", first.Canceled, first.Err())
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the watch of %q is not created", w.key)
	}
}

func (p *pair) unwatch() {
	for _, s := range []*side{p.real, p.fake} {
		for _, w := range s.watches {
			w.cancel()
		}
		s.watches = nil
	}
}

// drain has every watch see something new, and compares all that it has seen until
// then.
func (p *pair) drain(t failer) {
	for i, real := range p.real.watches {
		fake := p.fake.watches[i]
		last := int64(0)
		for real.end == "" && (last == 0 || last < fake.from) {
			last = p.mark(t, fake)
		}
		want, got := p.real.drain(t, real, last), p.fake.drain(t, fake, last)
		require.Equal(t, want, got, "watch of %q from %d", fake.key, fake.from)
		require.Equal(t, real.end, fake.end)
	}
}

// drain is what one watch has seen, flat: how events are bundled may differ.
func (s *side) drain(t failer, w *watch, last int64) (seen []string) {
	ctx, cancel := bounded()
	defer cancel()
	for w.end == "" {
		select {
		case resp, ok := <-w.events:
			switch {
			case !ok:
				w.end = "closed"
			case resp.Canceled:
				w.end = fmt.Sprintf("canceled: %v, compacted up to %d, of a revision: %t", resp.Err(), max(0, resp.CompactRevision-s.offset), resp.Header.GetRevision() > 0)
			}
			for _, ev := range resp.Events {
				seen = append(seen, s.plain(ev))
				if ev.Kv.ModRevision-s.offset == last {
					return seen
				}
			}
		case <-ctx.Done():
			t.Fatalf("the watch of %q from %d has not seen revision %d, only %v", w.key, w.from, last, seen)
		}
	}
	return seen
}

// mark makes a change, on both sides, that a watch must see, and returns its revision.
func (p *pair) mark(t failer, w *watch) int64 {
	p.ask(t, &pb.PutRequest{Key: []byte(w.key), Value: []byte("mark")})
	if w.deletes {
		p.ask(t, &pb.DeleteRangeRequest{Key: []byte(w.key)})
	}
	return p.revision(t)
}
