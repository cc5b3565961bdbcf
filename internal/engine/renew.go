package engine

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// RenewOnce renews a lease that is not the session's own, and returns the TTL that etcd gives it, in seconds; 0 or less is
// a lease that does not exist. It returns an error of etcd's or ctx's, and repeats nothing, where clientv3's KeepAliveOnce
// repeats without a pause what fails at once.
func RenewOnce(ctx context.Context, s *Session, id clientv3.LeaseID) (seconds int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := s.lease.Renewals(ctx)
	if err != nil {
		return 0, err
	}
	_ = stream.Send(int64(id)) // Recv returns the reason
	_, seconds, err = stream.Recv()
	return seconds, err
}
