package etcdfake

import (
	"errors"
	"io"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// serverStream is the server's side of one stream, of watches or of renewals.
type serverStream struct {
	server   *Server
	send     func(msg any)   // puts an answer on its way
	fail     func(err error) // ends the stream, behind its answers
	snap     func(err error) // breaks the stream
	require  bool            // it must have a leader
	watchers []*watcher
	nextID   int64
	opened   time.Time
	progress *time.Timer
	renewal  *pb.ResponseHeader // of the renewal that waits for the end of its lease
}

// watcher is one watch. All of them are up to date at all times.
type watcher struct {
	id       int64
	in       span
	from     int64 // revision
	prevKV   bool
	progress bool // asks for progress notifications
	quiet    bool // no event was sent since the last notification, or since it was created
	noPut    bool
	noDelete bool
}

// progressEvery is the time between two progress notifications, counted from the beginning of
// the stream. A real etcd adds up to a tenth to it, by chance.
const progressEvery = 10 * time.Minute

// take takes a message of the client's, as remote.take.
func (t *serverStream) take(msg any) (again <-chan struct{}) {
	s := t.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() {
		return nil
	}
	s.expire()
	switch m := msg.(type) {
	case *pb.LeaseKeepAliveRequest:
		if t.renewal == nil {
			t.renewal = s.header() // as of its arrival
		}
		resp := s.keepAlive(m, t.renewal)
		if resp == nil {
			return s.again
		}
		t.renewal = nil
		t.send(resp)
	case *pb.WatchRequest:
		if r := m.GetCreateRequest(); r != nil {
			t.create(r)
		} else if r := m.GetCancelRequest(); r != nil {
			t.cancel(r.WatchId)
		} else if m.GetProgressRequest() != nil {
			t.send(&pb.WatchResponse{Header: s.header(), WatchId: clientv3.InvalidWatchID})
		}
	}
	return nil
}

// end ends the stream: all that was sent has been answered.
func (t *serverStream) end() { t.fail(io.EOF) }

// forget removes the stream.
func (t *serverStream) forget() {
	s := t.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, func(x *serverStream) bool { return x == t })
}

func (t *serverStream) create(r *pb.WatchCreateRequest) {
	s := t.server
	refuse := func(err error) {
		t.send(&pb.WatchResponse{Header: s.header(), WatchId: clientv3.InvalidWatchID, Created: true, Canceled: true, CancelReason: err.Error()})
	}
	w := &watcher{
		id: r.WatchId, in: span{string(r.Key), string(r.RangeEnd)}, from: r.StartRevision,
		prevKV: r.PrevKv, progress: r.ProgressNotify, quiet: true,
		noPut:    slices.Contains(r.Filters, pb.WatchCreateRequest_NOPUT),
		noDelete: slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE),
	}
	if w.in.key == "" {
		w.in.key = "\x00"
	}
	switch {
	case r.StartRevision < 0:
		refuse(rpctypes.ErrCompacted)
		return
	case w.in.end != "" && w.in.end != fromKey && w.in.key >= w.in.end:
		refuse(errEmptyRange)
		return
	case r.Fragment:
		refuse(errors.New("etcdfake: a Watch with WithFragment is not supported"))
		return
	case w.id != 0 && t.find(w.id) >= 0:
		refuse(errDuplicateID)
		return
	}
	if w.id == 0 {
		for t.find(t.nextID) >= 0 {
			t.nextID++
		}
		w.id = t.nextID
		t.nextID++
	}
	if w.from == 0 {
		w.from = s.store.revision + 1
	}
	t.send(&pb.WatchResponse{Header: s.header(), WatchId: w.id, Created: true})
	if w.from < s.store.compacted {
		t.send(&pb.WatchResponse{Header: s.headerAt(0), WatchId: w.id, Canceled: true, CompactRevision: s.store.compacted}) // of no revision, as etcd's
		return
	}
	t.watchers = append(t.watchers, w)
	t.sendTo(w, s.store.since(w.from))
	if w.progress && t.progress == nil {
		t.progress = time.AfterFunc(progressEvery-time.Since(t.opened)%progressEvery, t.report)
	}
}

func (t *serverStream) find(id int64) int {
	return slices.IndexFunc(t.watchers, func(w *watcher) bool { return w.id == id })
}

func (t *serverStream) cancel(id int64) {
	if i := t.find(id); i >= 0 {
		t.watchers = slices.Delete(t.watchers, i, i+1)
		t.send(&pb.WatchResponse{Header: t.server.header(), WatchId: id, Canceled: true})
	}
}

// notify sends the changes of one revision to all watches that match them.
func (t *serverStream) notify(changes []change) {
	for _, w := range t.watchers {
		t.sendTo(w, changes)
	}
}

func (t *serverStream) sendTo(w *watcher, changes []change) {
	s := t.server
	var events []*mvccpb.Event
	for _, c := range changes {
		put := c.event.Type == clientv3.EventTypePut
		if c.revision < w.from || put && w.noPut || !put && w.noDelete || !w.in.holds(c.key) {
			continue
		}
		e := &mvccpb.Event{Type: c.event.Type, Kv: c.event.Kv}
		if w.prevKV && c.revision > s.store.compacted { // what was before it has not been forgotten
			e.PrevKv = c.event.PrevKv
		}
		events = append(events, e)
	}
	if len(events) > 0 {
		w.quiet = false
		t.send(&pb.WatchResponse{Header: s.header(), WatchId: w.id, Events: events})
	}
}

// report sends progress to the watches that want it.
func (t *serverStream) report() {
	s := t.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped() || !slices.Contains(s.streams, t) {
		return
	}
	for _, w := range t.watchers {
		if w.progress && w.quiet {
			t.send(&pb.WatchResponse{Header: s.header(), WatchId: w.id})
		}
		w.quiet = true
	}
	t.progress.Reset(progressEvery)
}

var (
	errEmptyRange  = errors.New("mvcc: watcher range is empty")
	errDuplicateID = errors.New("mvcc: duplicate watch ID provided on the WatchStream")
	errNoLeader    = rpctypes.ErrGRPCNoLeader
)
