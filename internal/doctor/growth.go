package doctor

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// ManyRevisions is how many revisions etcd keeps before a count of names that are gone takes tens of
// milliseconds: docs/operations.md, compaction and quota.
const ManyRevisions = 200_000

// Compaction looks for revisions that should have been compacted: etcd does not say whether it compacts by itself. The
// user may read the key. many is how many revisions are too many.
func Compaction(ctx context.Context, kv clientv3.KV, key string, many int64) []Finding {
	now, err := kv.Get(ctx, key, clientv3.WithCountOnly())
	if err != nil {
		return NotMade("old revisions", err)
	}
	revision := now.Header.GetRevision()
	if revision <= many {
		return history(many, nil, revision)
	}
	_, err = kv.Get(ctx, key, clientv3.WithCountOnly(), clientv3.WithRev(revision-many))
	return history(many, err, revision)
}

// history judges the answer to a read of a revision that is old revisions before the present one, if there is one.
func history(old int64, err error, revision int64) []Finding {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return One(OK, "", "old revisions are compacted: fewer than %d are kept", old)
	case err != nil:
		return NotMade("old revisions", err)
	case revision <= old:
		return One(OK, "", "fewer than %d revisions are kept", old)
	}
	return One(Warn, "Each acquire visits the names of processes and requests that are gone, until compaction removes them. Turn it on, or keep less than that: see docs/operations.md, compaction and quota.",
		"more than %d revisions are kept", old)
}

// manyLeases is how many leases are more than etcd's users report to be safe: members of one cluster failed at
// 25,000 to 60,000 of short TTLs (etcd-io/etcd#11886).
const manyLeases = 25_000

// Leases counts the leases of the cluster, of all its users.
func Leases(ctx context.Context, client clientv3.Lease) []Finding {
	all, err := client.Leases(ctx)
	switch {
	case commit.Denied(err):
		return One(Note, "A user with more permissions can make this check.", "the user may not list them")
	case err != nil:
		return NotMade("leases", err)
	}
	return leased(len(all.Leases))
}

// leased judges the number of leases.
func leased(n int) []Finding {
	word := "leases"
	if n == 1 {
		word = "lease"
	}
	if n >= manyLeases {
		return One(Warn, "Each of them is renewed by itself, and a new leader of etcd extends all of them. etcdkit takes one for each session, and some for the records of requests: look for a program that takes one for each key.", "%d %s in the cluster", n, word)
	}
	return One(OK, "", "%d %s in the cluster", n, word)
}
