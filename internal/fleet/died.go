package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/etcdkit/etcdkit/internal/record"
)

// The latest mostDied processes that died are known, each for diedFor milliseconds.
const (
	mostDied = 10
	diedFor  = 3600_000
)

// Died is a process that died, or lost its lease, while it held a permit, ran a job or executed a request.
type Died struct {
	Owner string
	At    int64  // when that was known here
	Had   []Held // what it held, ran and executed, by name, so many as mostHad at most
}

// Held is a permit, a run or an attempt of a process that has died. Its keys are gone, but for the record of a request.
type Held struct {
	Name     string // as semaphore/charge, limiter/api/acme, job/nightly or requests/orders
	Token    int64  // of a permit or a run
	ID, Note string // of a permit; with Options.Details
	Ref      string // of a request

	value *[]byte // of a permit's request
}

// mostHad bounds what is kept of one process.
const mostHad = 50

// deaths are the processes that died. Of a lease that is revoked or expires, etcd deletes all keys at one revision, in the order of
// their names, in which those of requests and of locks of jobs are before the presence key of the session. A process that closes its
// session has released what it held at an earlier revision.
type deaths struct {
	of map[int64]Died // by lease

	lease, revision int64            // of the key that is being removed
	holds           map[int64][]Held // by the leases of what has ended at that revision, and held a permit or ran a job
}

// begin begins the removal of a key.
func (d *deaths) begin(lease, revision int64) {
	if d.lease = lease; revision != d.revision {
		d.revision = revision
		clear(d.holds)
	}
}

// held notes that the key that is being removed held a permit, or ran a job.
func (d *deaths) held(what Held) {
	if had := d.holds[d.lease]; len(had) < mostHad {
		d.holds[d.lease] = append(had, what)
	}
}

// heldIn returns what the request with a key holds in a queue with a name.
func heldIn(l *Queue, name, key string) (h Held) {
	h.Name = name
	if e := l.entries[key]; e != nil {
		h.Token, h.value = e.create, e.value
	}
	return h
}

// decoded reads what people call a permit.
func (h Held) decoded() Held {
	if h.value != nil {
		r, _ := record.DecodeRequest(*h.value)
		h.ID, h.Note, h.value = r.ID, r.Note, nil
	}
	return h
}

// ended takes the end of a session. works are the requests whose records name an attempt of it as working. That of a permit that outlives its
// process, of etcdkit hold, is no death.
func (d *deaths) ended(lease int64, owner string, works map[requestAt]struct{}, now int64) {
	had := d.holds[lease]
	if len(had)+len(works) == 0 || strings.HasPrefix(owner, record.HoldOwner) {
		return
	}
	had = slices.Clone(had)
	for i := range had {
		had[i] = had[i].decoded()
	}
	for at := range works {
		if len(had) < mostHad {
			had = append(had, Held{Name: "requests/" + at.store.name, Ref: at.ref, Note: at.store.notes[at.ref]})
		}
	}
	d.of[lease] = Died{owner, now, had}
	maps.DeleteFunc(d.of, func(_ int64, of Died) bool { return now-of.At > diedFor })
	d.latest()
}

// inherit takes over what an earlier list has seen, beside what was seen since this one was read.
func (d *deaths) inherit(from deaths) {
	maps.Copy(d.of, from.of)
	d.latest()
}

// latest forgets all but the latest mostDied.
func (d *deaths) latest() {
	for len(d.of) > mostDied {
		delete(d.of, slices.MinFunc(slices.Collect(maps.Keys(d.of)), func(a, b int64) int { return cmp.Compare(d.of[a].At, d.of[b].At) }))
	}
}

// list is State.Died.
func (d *deaths) list(now int64, name func(owner string) string) (all []Died) {
	owners := map[string]Died{}
	for _, of := range d.of {
		if owner := name(of.Owner); now-of.At <= diedFor {
			was := owners[owner]
			owners[owner] = Died{owner, max(was.At, of.At), slices.Concat(was.Had, of.Had)}
		}
	}
	for _, of := range owners {
		slices.SortFunc(of.Had, func(a, b Held) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token), strings.Compare(a.Ref, b.Ref))
		})
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b Died) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Owner, b.Owner)) })
	return all
}
