package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// errProxy refuses a session behind etcd's gRPC proxy.
var errProxy = fmt.Errorf("etcd's gRPC proxy is between, through which watches lose events and renewals are late: give the client the addresses of etcd's members, or set AllowProxy: %w", errors.ErrUnsupported)

// openFirst is opening.once for a new session, which is refused behind a proxy.
func openFirst(ctx context.Context, s *Session) (*Epoch, error) {
	defer sayWhileOpening(s)()
	if s.opts.AllowProxy {
		return opening{s}.once(ctx)
	}
	answer := askForProxy(ctx, s.etcd.Client)
	e, err := opening{s}.once(ctx)
	if err != nil {
		return nil, err
	}
	if err := refuseProxy(answer); err != nil {
		e.end(ErrClosed, err)
		s.Background(func() { _ = s.revoke(e.lease, err) })
		return nil, err
	}
	return e, nil
}

// askForProxy asks, beside what else a new session asks for, whether etcd's gRPC proxy is between. That changes no
// answer to a Txn, a grant or a read; but it answers a request for the members itself.
func askForProxy(ctx context.Context, etcd *clientv3.Client) <-chan bool {
	answer := make(chan bool, 1)
	cluster := pb.NewClusterClient(etcd.ActiveConnection())
	go func() {
		call, cancel := commit.Call(ctx)
		defer cancel()
		members, err := cluster.MemberList(call, &pb.MemberListRequest{}) // not linearizable: no majority is asked
		answer <- err == nil && proxied(members)
	}()
	return answer
}

// proxied reports whether a list of members is that of etcd's gRPC proxy: it has no header, and its members no ID.
func proxied(list *pb.MemberListResponse) bool {
	return list.GetHeader().GetMemberId() == 0 && slices.ContainsFunc(list.GetMembers(), func(m *pb.Member) bool { return m.GetID() == 0 })
}

// refuseProxy returns an error if the answer is, or comes within a moment and is, that a proxy is between. Where the
// list of members is refused, or late, a proxy is not known.
func refuseProxy(answer <-chan bool) error {
	late := time.NewTimer(silence)
	defer late.Stop()
	select {
	case between := <-answer:
		if between {
			return errProxy
		}
	case <-late.C:
	}
	return nil
}
