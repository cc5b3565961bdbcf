package fleet

import (
	"cmp"
	"maps"
	"slices"
)

// The latest mostDied processes that died are known, each for diedFor milliseconds.
const (
	mostDied = 10
	diedFor  = 3600_000
)

// Died is a process that died, or lost its lease, while it held a permit, ran a job or executed a request.
type Died struct {
	Owner string
	At    int64 // when that was known here
}

// deaths are the processes that died. Of a lease that is revoked or expires, etcd deletes all keys at one revision, in the order of
// their names, in which those of requests and of locks of jobs are before the presence key of the session. A process that closes its
// session has released what it held at an earlier revision.
type deaths struct {
	of map[int64]Died // by lease

	lease, revision int64              // of the key that is being removed
	holds           map[int64]struct{} // the leases of what has ended at that revision, and held a permit or ran a job
}

// begin begins the removal of a key.
func (d *deaths) begin(lease, revision int64) {
	if d.lease = lease; revision != d.revision {
		d.revision = revision
		clear(d.holds)
	}
}

// held notes that the key that is being removed held a permit, or ran a job.
func (d *deaths) held() { d.holds[d.lease] = struct{}{} }

// ended takes the end of a session. works is whether a record names an attempt of it as working.
func (d *deaths) ended(lease int64, owner string, works bool, now int64) {
	if _, held := d.holds[lease]; !held && !works {
		return
	}
	d.of[lease] = Died{owner, now}
	maps.DeleteFunc(d.of, func(_ int64, of Died) bool { return now-of.At > diedFor })
	for len(d.of) > mostDied {
		delete(d.of, slices.MinFunc(slices.Collect(maps.Keys(d.of)), func(a, b int64) int { return cmp.Compare(d.of[a].At, d.of[b].At) }))
	}
}

// list is State.Died.
func (d *deaths) list(now int64, name func(owner string) string) (all []Died) {
	at := map[string]int64{}
	for _, of := range d.of {
		if owner := name(of.Owner); now-of.At <= diedFor {
			at[owner] = max(at[owner], of.At)
		}
	}
	for owner, ms := range at {
		all = append(all, Died{owner, ms})
	}
	slices.SortFunc(all, func(a, b Died) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Owner, b.Owner)) })
	return all
}
