package doctor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
)

// Survey is what each endpoint has answered for itself.
type Survey struct {
	Answers []Answer
	Slow    time.Duration // an answer that takes longer is a warning
}

// Answer is what one endpoint has answered.
type Answer struct {
	Endpoint string
	Status   *pb.StatusResponse // nil if Err is not
	Took     time.Duration      // to connect and to answer Status
	Expires  time.Time          // when the server's certificate ends; zero without TLS
	Err      error

	Members    *pb.MemberListResponse // nil if MembersErr is not
	MembersErr error
	Renewal    int64 // the TTL in the answer to a renewal of a lease that does not exist: 0 by etcd
	RenewalErr error
}

// Ask asks each endpoint by itself, at the same time, each within bound.
func Ask(ctx context.Context, client *clientv3.Client, bound, slow time.Duration) Survey {
	s := Survey{make([]Answer, len(client.Endpoints())), slow}
	var asked sync.WaitGroup
	for i, endpoint := range client.Endpoints() {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, bound)
			defer cancel()
			s.Answers[i] = ask(ctx, client, endpoint)
		})
	}
	asked.Wait()
	return s
}

// Again asks once more, for what has become of the members since a call has failed. The call may have used up ctx.
func (s Survey) Again(ctx context.Context, client *clientv3.Client) Survey {
	return Ask(context.WithoutCancel(ctx), client, askAgain, s.Slow)
}

const askAgain = 2 * time.Second

// ask asks one endpoint. A refused connection is an answer at once, with its reason.
func ask(ctx context.Context, client *clientv3.Client, endpoint string) (a Answer) {
	a.Endpoint = endpoint
	began := time.Now()
	conn, err := client.Dial(endpoint)
	if err != nil {
		a.Err = err
		return a
	}
	defer conn.Close()
	var from peer.Peer
	a.Status, err = pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}, grpc.Peer(&from))
	a.Expires = expires(&from)
	if a.Took = time.Since(began); err != nil {
		a.Err, a.MembersErr, a.RenewalErr = rpctypes.Error(err), err, err
		return a
	}
	a.Members, err = pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	a.MembersErr = rpctypes.Error(err)
	a.Renewal, err = renewAbsent(ctx, pb.NewLeaseClient(conn))
	a.RenewalErr = rpctypes.Error(err)
	return a
}

// renewAbsent renews a lease that does not exist, and returns the TTL of the answer.
func renewAbsent(ctx context.Context, leases pb.LeaseClient) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := leases.LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: rand.Int64N(1<<62) + 1}); err != nil {
		_, err = stream.Recv() // which returns the reason
		return 0, err
	}
	resp, err := stream.Recv()
	return resp.GetTTL(), err
}

// kind is what answers at an endpoint.
type kind int

const (
	silent  kind = iota // nothing
	member              // a member of etcd, maybe behind a balancer of connections
	proxied             // etcd's gRPC proxy
	other               // a server that only speaks etcd's API, such as kine
)

// kind returns what answers at the endpoint. etcd's header names the cluster and the member. Its gRPC proxy passes Status on
// and answers MemberList itself, without a header and with a member without an ID; started without an address to advertise
// it passes MemberList on as well, and then its answer to a renewal of a lease that does not exist gives it away: -1.
func (a Answer) kind() kind {
	header := a.Status.GetHeader()
	switch {
	case a.Err != nil:
		return silent
	case header.GetClusterId() == 0 || header.GetMemberId() == 0:
		return other
	case a.MembersErr == nil && proxies(a.Members), a.RenewalErr == nil && a.Renewal < 0:
		return proxied
	}
	return member
}

// proxies reports whether a list of members is that of etcd's gRPC proxy: it has no header, or its members no ID.
func proxies(list *pb.MemberListResponse) bool {
	return list.GetHeader().GetMemberId() == 0 || slices.ContainsFunc(list.GetMembers(), func(m *pb.Member) bool { return m.GetID() == 0 })
}

// members returns the members of the cluster by the first endpoint that is one, or why no list is known.
func (s Survey) members() ([]*pb.Member, error) {
	err := errors.New("no member of etcd was asked")
	for _, a := range s.Answers {
		if a.kind() != member {
			continue
		}
		if a.MembersErr == nil {
			return a.Members.Members, nil
		}
		if !a.Status.GetIsLearner() { // which answers no such question
			err = a.MembersErr
		}
	}
	return nil, err
}

// named returns a member as an operator knows it.
func (s Survey) named(id uint64) string {
	members, _ := s.members()
	for _, m := range members {
		if m.GetID() == id {
			return describe(m)
		}
	}
	for _, a := range s.Answers {
		if a.Err == nil && a.Status.GetHeader().GetMemberId() == id {
			return fmt.Sprintf("%x (%s)", id, a.Endpoint)
		}
	}
	return fmt.Sprintf("%x", id)
}

// describe names a member by its ID as etcdctl prints it, its name and its addresses.
func describe(m *pb.Member) string {
	known := append([]string{m.GetName()}, m.GetClientURLs()...)
	known = slices.DeleteFunc(known, func(s string) bool { return s == "" })
	return fmt.Sprintf("%x (%s)", m.GetID(), strings.Join(known, ", "))
}
