package cli

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// manyRevisions is how many revisions etcd keeps before a count of names that are gone takes tens of
// milliseconds: docs/operations.md, compaction and quota.
const manyRevisions = 200_000

// compaction looks for revisions that should have been compacted: etcd does not say whether it compacts by itself.
func (d *doctor) compaction(ctx context.Context) []finding {
	key, err := d.key()
	if err != nil {
		return one(levelFail, "Correct --prefix.", "%v", err)
	}
	now, err := d.client.Get(ctx, key, clientv3.WithCountOnly())
	if err != nil {
		return notMade("old revisions", err)
	}
	revision := now.Header.GetRevision()
	if revision <= d.old {
		return history(d.old, nil, revision)
	}
	_, err = d.client.Get(ctx, key, clientv3.WithCountOnly(), clientv3.WithRev(revision-d.old))
	return history(d.old, err, revision)
}

// history judges the answer to a read of a revision that is old revisions before the present one, if there is one.
func history(old int64, err error, revision int64) []finding {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return one(levelOK, "", "old revisions are compacted: fewer than %d are kept", old)
	case err != nil:
		return notMade("old revisions", err)
	case revision <= old:
		return one(levelOK, "", "fewer than %d revisions are kept", old)
	}
	return one(levelWarn, "Each acquire visits the names of processes and requests that are gone, until compaction removes them. Turn it on, or keep less than that: see docs/operations.md, compaction and quota.",
		"more than %d revisions are kept", old)
}

// manyLeases is how many leases are more than etcd's users report to be safe: members of one cluster failed at
// 25,000 to 60,000 of short TTLs (etcd-io/etcd#11886).
const manyLeases = 25_000

// leases counts the leases of the cluster, of all its users.
func (d *doctor) leases(ctx context.Context) []finding {
	all, err := d.client.Leases(ctx)
	if code, _ := classify(err); code == exitDenied {
		return one(levelOK, "", "the user may not list them")
	}
	if err != nil {
		return notMade("leases", err)
	}
	return leased(len(all.Leases))
}

// leased judges the number of leases.
func leased(n int) []finding {
	if n >= manyLeases {
		return one(levelWarn, "Each of them is renewed by itself, and a new leader of etcd extends all of them. etcdkit takes one for each session, and some for the records of requests: look for a program that takes one for each key.", "%s in the cluster", count(n, "lease", "leases"))
	}
	return one(levelOK, "", "%s in the cluster", count(n, "lease", "leases"))
}
