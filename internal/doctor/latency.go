package doctor

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Times are the least and the greatest time that a call took, of several.
type Times struct{ Least, Most time.Duration }

// String returns both in milliseconds, or one if they are the same.
func (t Times) String() string {
	least, most := Millis(t.Least), Millis(t.Most)
	if least == most {
		return least
	}
	return least + " to " + most
}

// measure makes a call several times, and stops before the check runs out of time if one has succeeded.
func measure(ctx context.Context, times int, call func(context.Context) error) (t Times, err error) {
	for n := range times {
		asked := time.Now()
		err := call(ctx)
		took := time.Since(asked)
		if n > 0 && late(ctx, err) {
			t.Most = max(t.Most, took)
			return t, nil
		}
		if err != nil {
			return t, err
		}
		if t.Most = max(t.Most, took); n == 0 || took < t.Least {
			t.Least = took
		}
	}
	return t, nil
}

// Reads reads a key with a majority, as each list of a queue does.
func Reads(ctx context.Context, kv clientv3.KV, key string, times int) (Times, error) {
	return measure(ctx, times, func(ctx context.Context) error {
		_, err := kv.Get(ctx, key, clientv3.WithCountOnly())
		return err
	})
}

// Writes has a majority store an entry that changes nothing, as each acquire has it store one: a Txn whose condition is
// false. Its user needs no permission: etcd stores the entry before it refuses the user.
func Writes(ctx context.Context, kv clientv3.KV, key string, times int) (Times, error) {
	return measure(ctx, times, func(ctx context.Context) error {
		_, err := kv.Txn(ctx).If(never(key)).Then(clientv3.OpDelete(key)).Commit()
		if commit.Denied(err) && !NoUser(err) {
			return nil
		}
		return err
	})
}

// never is a condition that no key meets.
func never(key string) clientv3.Cmp { return clientv3.Compare(clientv3.Version(key), "<", 0) }

// Majority judges reads. cut reports whether nothing in etcd can be read.
func (s Survey) Majority(t Times, err error) (found []Finding, cut bool) {
	switch {
	case NoUser(err):
		return nil, true // the check of users says so
	case commit.Denied(err):
		return One(Warn, "The role of the user must cover the namespace: see docs/operations.md, roles.", "may not read: %v", err), false
	case err != nil:
		return s.unread(err), true
	case t.Most > s.Slow:
		return One(Warn, "Each list of a queue waits for one: look for busy machines, slow disks or a far network.", "slow: a majority answers reads in %s", t), false
	}
	return One(OK, "", "a majority answers reads in %s", t), false
}

// unread judges a read that has failed. Only what members say of their leader shows that there is no majority.
func (s Survey) unread(err error) []Finding {
	leading, leaderless, learners, members := 0, 0, 0, 0
	for _, a := range s.Answers {
		if a.kind() != member {
			continue
		}
		members++
		switch {
		case a.Status.GetIsLearner():
			learners++
		case a.Status.GetLeader() == 0:
			leaderless++
		default:
			leading++
		}
	}
	switch {
	case members > 0 && learners == members:
		return One(Fail, "A learner serves no clients: give the endpoints of voting members.", "a read failed, since each endpoint that answers is a learner: %v", err)
	case leaderless > 0 && leading == 0, errors.Is(err, rpctypes.ErrNoLeader):
		return One(Fail, "No majority of members answers: nothing is granted, and permits end with their leases. Start the members that are down.", "a read by a majority failed: %v", err)
	case leading > 0:
		return One(Fail, "Members answer and have a leader, but the read took longer than --command-timeout, or failed: look for slow disks, busy machines or a far network. If the leader was just lost, run doctor again.", "a read failed: %v", err)
	}
	return One(Fail, "Whether a majority of members works is not known.", "a read failed: %v", err)
}

// Writing judges writes, beside reads. An acquire and its release are two writes, so one may take half of what an
// answer may.
func (s Survey) Writing(read, write Times, err error) []Finding {
	const disks = "Each acquire and each release waits for one. Reads are fast, and a write is one once the disks of a majority have it (fsync): look for slow or shared disks below etcd."
	switch {
	case commit.Denied(err):
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace), errors.Is(err, rpctypes.ErrCorrupt):
		return nil // the alarm says so
	case err != nil:
		return One(Fail, "Reads are answered: look for slow disks (fsync), or for a majority that was just lost.", "a write failed: %v", err)
	case write.Most <= s.Slow/2:
		return One(OK, "", "a majority stores a write in %s", write)
	case read.Least*4 < write.Least:
		return One(Warn, disks, "slow: a majority stores a write in %s, and answers a read in %s", write, Millis(read.Least))
	}
	return One(Warn, "Each acquire and each release waits for one: look for slow disks, busy machines or a far network.", "slow: a majority stores a write in %s", write)
}
