package etcdfake

import (
	"cmp"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// lease is a lease. Without ExpireEvery it ends on the nanosecond: a real etcd
// looks every half second, and so never sooner.
type lease struct {
	id      int64
	ttl     int64 // seconds
	expires time.Time
	keys    map[string]bool
}

// minTTL is the TTL, in seconds, of a lease that is granted for a shorter time: that of an
// etcd of default settings. Package embedtest's has 1.
const minTTL = 2

// longest is the greatest TTL that etcd grants.
const longest = 9_000_000_000

// now is the time by the server's clock.
func (s *Server) now() time.Time { return time.Now().Add(s.skew) }

func (s *Server) grant(r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	switch {
	case r.TTL > longest:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	case s.leases[r.ID] != nil:
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	id := r.ID
	for id == 0 || r.ID == 0 && s.leases[id] != nil {
		s.lastID++
		id = s.lastID
	}
	l := &lease{id: id, ttl: max(r.TTL, minTTL), keys: map[string]bool{}}
	s.leases[id] = l
	s.renew(l)
	return &pb.LeaseGrantResponse{Header: s.header(), ID: id, TTL: l.ttl}, nil
}

// renew has a lease begin anew, and sets the alarm if no other ends before it.
func (s *Server) renew(l *lease) {
	l.expires = s.now().Add(time.Duration(l.ttl) * time.Second)
	if end := s.endOf(l); s.next.IsZero() || end.Before(s.next) {
		s.setAlarm(end)
	}
}

// findNext sets the alarm for the lease that ends first.
func (s *Server) findNext() {
	var next time.Time
	for _, l := range s.leases {
		if end := s.endOf(l); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	s.setAlarm(next)
}

// setAlarm has leases looked at again at a time that is no later than the end of any. After a renewal it can be
// earlier: then nothing ends.
func (s *Server) setAlarm(next time.Time) {
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.next = next
	if !next.IsZero() && !s.stuck {
		s.alarm = time.AfterFunc(next.Sub(s.now()), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.stopped() {
				s.expire()
			}
		})
	}
}

// endOf returns when a lease ends: at the first look after it has expired.
func (s *Server) endOf(l *lease) time.Time {
	if s.expireEvery == 0 {
		return l.expires
	}
	looks := (l.expires.Sub(s.begun) + s.expireEvery - 1) / s.expireEvery
	return s.begun.Add(looks * s.expireEvery) //nolint:durationcheck // looks is a count
}

// expire ends what has had its time. Everything that looks at the state calls it
// first, so that at the instant of the end the lease is gone, whichever timer fires
// first.
func (s *Server) expire() {
	now := s.now()
	if s.stuck || now.Before(s.next) {
		return
	}
	due := slices.DeleteFunc(slices.Collect(maps.Values(s.leases)), func(l *lease) bool { return s.endOf(l).After(now) })
	slices.SortFunc(due, byEnd)
	for _, l := range due {
		s.end(l)
	}
	s.findNext()
}

// end removes a lease and, at one revision, its keys.
func (s *Server) end(l *lease) {
	delete(s.leases, l.id)
	w := &write{store: s.store}
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		w.delete(key)
	}
	s.commit(w)
	s.renewAgain()
}

// renewAgain has the renewals of expired leases look again for their lease.
func (s *Server) renewAgain() {
	close(s.again)
	s.again = make(chan struct{})
}

func (s *Server) revoke(r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	l := s.leases[r.ID]
	if l == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.end(l)
	return &pb.LeaseRevokeResponse{Header: s.header()}, nil
}

// keepAlive answers one renewal: with a TTL of 0 if there is no such lease. An expired lease
// is not renewed. Until it has ended the result is nil: the renewal waits, as in etcd, which
// cannot be sure before that the lease will end.
func (s *Server) keepAlive(r *pb.LeaseKeepAliveRequest, header *pb.ResponseHeader) *pb.LeaseKeepAliveResponse {
	resp := &pb.LeaseKeepAliveResponse{Header: header, ID: r.ID}
	if l := s.leases[r.ID]; l != nil {
		if !l.expires.After(s.now()) {
			return nil
		}
		s.renew(l)
		resp.TTL = l.ttl
	}
	return resp
}

func (s *Server) timeToLive(r *pb.LeaseTimeToLiveRequest) *pb.LeaseTimeToLiveResponse {
	l := s.leases[r.ID]
	if l == nil {
		return &pb.LeaseTimeToLiveResponse{Header: s.header(), ID: r.ID, TTL: -1}
	}
	resp := &pb.LeaseTimeToLiveResponse{Header: s.header(), ID: r.ID, TTL: int64(l.expires.Sub(s.now()) / time.Second), GrantedTTL: l.ttl}
	if r.Keys {
		for _, key := range slices.Sorted(maps.Keys(l.keys)) {
			resp.Keys = append(resp.Keys, []byte(key))
		}
	}
	return resp
}

// listLeases lists the one that ends first first.
func (s *Server) listLeases() *pb.LeaseLeasesResponse {
	resp := &pb.LeaseLeasesResponse{Header: s.header()}
	for _, l := range slices.SortedFunc(maps.Values(s.leases), byEnd) {
		resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.id})
	}
	return resp
}

func byEnd(a, b *lease) int { return cmp.Or(a.expires.Compare(b.expires), cmp.Compare(a.id, b.id)) }

// attach hangs keys on their leases as changes say.
func (s *Server) attach(changes []change) {
	for _, c := range changes {
		if c.was != nil && s.leases[c.was.Lease] != nil {
			delete(s.leases[c.was.Lease].keys, string(c.was.Key))
		}
		if kv := c.event.Kv; kv.Lease != 0 {
			s.leases[kv.Lease].keys[string(kv.Key)] = true
		}
	}
}
