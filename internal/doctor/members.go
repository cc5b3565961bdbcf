package doctor

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Members compares the endpoints with the members of the cluster.
func (s Survey) Members() (found []Finding) {
	members, err := s.members()
	switch {
	case NoUser(err):
		return nil // the check of users says so
	case commit.Denied(err):
		return One(OK, "", "the user may not list the members")
	case err != nil && !slices.ContainsFunc(s.Answers, func(a Answer) bool { return a.kind() == member && !a.Status.GetIsLearner() }):
		return One(Warn, "Give an endpoint that is a member.", "the members are not known: %v", err)
	case err != nil:
		return NotMade("members", err)
	}
	found = append(found, s.unlisted(members)...)
	found = append(found, s.twice()...)
	found = append(found, s.aliases(members)...)
	return append(found, votes(members)...)
}

// unlisted warns of members that no endpoint is.
func (s Survey) unlisted(members []*pb.Member) []Finding {
	var missing []string
	for _, m := range members {
		if !m.GetIsLearner() && !slices.ContainsFunc(s.Answers, func(a Answer) bool { return a.is(m) }) {
			missing = append(missing, describe(m))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return One(Warn, "A client that does not have all members stops with those it has, though a majority works. Give doctor and all services the address of each; one that stands for several, as of a balancer, is no replacement.",
		"%d of %d members are not among the endpoints: %s", len(missing), len(members), strings.Join(missing, "; "))
}

// is reports whether the endpoint is a member: by its answer, or by its address if it has none.
func (a Answer) is(m *pb.Member) bool {
	if a.kind() == member {
		return a.Status.GetHeader().GetMemberId() == m.GetID()
	}
	return a.Err != nil && slices.ContainsFunc(m.GetClientURLs(), func(u string) bool { return host(u) == host(a.Endpoint) })
}

// host returns the host and port of an address, with or without a scheme.
func host(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return address
}

// twice warns of endpoints that are one member.
func (s Survey) twice() (found []Finding) {
	first := map[uint64]string{}
	for _, a := range s.Answers {
		if a.kind() != member {
			continue
		}
		id := a.Status.GetHeader().GetMemberId()
		if other, ok := first[id]; ok {
			found = append(found, One(Warn, "Two names of one member, or a balancer: the endpoints are fewer members than they seem.", "%s and %s are the same member, %s", other, a.Endpoint, s.named(id))...)
			continue
		}
		first[id] = a.Endpoint
	}
	return found
}

// aliases names the endpoints that are no member's own address.
func (s Survey) aliases(members []*pb.Member) (found []Finding) {
	for _, a := range s.Answers {
		own := func(m *pb.Member) bool {
			return slices.ContainsFunc(m.GetClientURLs(), func(u string) bool { return host(u) == host(a.Endpoint) })
		}
		if a.kind() == member && !slices.ContainsFunc(members, own) {
			found = append(found, One(OK, "", "%s is no address that a member has for clients; member %s has answered: another name of it, or a balancer", a.Endpoint, s.named(a.Status.GetHeader().GetMemberId()))...)
		}
	}
	return found
}

// votes judges the number of members.
func votes(members []*pb.Member) []Finding {
	voting := 0
	var learners []string
	for _, m := range members {
		if m.GetIsLearner() {
			learners = append(learners, describe(m))
		} else {
			voting++
		}
	}
	text := fmt.Sprintf("%d voting members", voting)
	if voting == 1 {
		text = "1 voting member"
	}
	if len(learners) > 0 {
		text += ", and learners: " + strings.Join(learners, "; ")
	}
	switch {
	case voting == 1:
		return One(Warn, "While it is away nothing is granted, and permits end with their leases. Three members continue without one of them.", "%s", text)
	case voting > 0 && voting%2 == 0:
		return One(Warn, fmt.Sprintf("They continue without %d of them, as %d would: an odd number costs less.", (voting-1)/2, voting-1), "%s", text)
	}
	return One(OK, "", "%s", text)
}
