package schedlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// plan is how a claim is to be made, by what was last read.
type plan struct {
	attempt  int
	mod      int64  // of the run record of the attempt before, or 0
	before   string // and the record
	settings string // as they are stored, or ""
}

// state is what stands in the way of a tick, as of one revision.
type state struct {
	lock, hold, pause, settings, run []*mvccpb.KeyValue
	latest                           time.Time // the latest tick after this one that was claimed or trimmed, or this one if it was
	foreign                          string    // a key among them that tells no tick
}

func (l *Locker) look(ctx context.Context, j *job, tick time.Time) (st state, err error) {
	call, cancel := commit.Call(ctx)
	defer cancel()
	run := j.keys.Run(tick)
	last := []clientv3.OpOption{clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)}
	resp, err := l.client.Txn(call).Then(
		clientv3.OpGet(j.keys.Lock()), clientv3.OpGet(j.keys.Hold()), clientv3.OpGet(j.keys.Pause()),
		clientv3.OpGet(j.keys.Settings()), clientv3.OpGet(run),
		clientv3.OpGet(run+"\x00", append(slices.Clone(last), clientv3.WithRange(j.keys.Run(l.horizon())))...),
		clientv3.OpGet(j.keys.Floor(tick), append(last, clientv3.WithRange(clientv3.GetPrefixRangeEnd(j.keys.Floors())))...),
	).Commit()
	if err != nil {
		return st, err
	}
	kvs := func(i int) []*mvccpb.KeyValue { return resp.Responses[i].GetResponseRange().Kvs }
	ok := false
	st = state{lock: kvs(0), hold: kvs(1), pause: kvs(2), settings: kvs(3), run: kvs(4)}
	if len(kvs(5)) > 0 {
		if st.latest, ok = j.keys.ParseRun(string(kvs(5)[0].Key)); !ok {
			st.foreign = string(kvs(5)[0].Key)
		}
	}
	if len(kvs(6)) > 0 {
		floor, ok := j.keys.ParseFloor(string(kvs(6)[0].Key))
		if !ok {
			st.foreign = string(kvs(6)[0].Key)
		}
		if floor.After(st.latest) {
			st.latest = floor
		}
	}
	return st, nil
}

// standBy is no outcome: the tick is claimed, and may come back.
const standBy = Outcome(-1)

// decide tells what is in the way, or with 0 how to claim the tick.
// own is the session's lease.
func (st state) decide(j *job, s request, own clientv3.LeaseID) (plan, Outcome, error) {
	p := plan{attempt: 1}
	if len(st.settings) > 0 {
		p.settings = cmp.Or(string(st.settings[0].Value), "none")
	}
	if len(st.run) > 0 {
		r, ok := record.DecodeRun(st.run[0].Value)
		runs := len(st.lock) > 0 && st.lock[0].CreateRevision == st.run[0].ModRevision
		switch {
		case !ok || r.State != record.RunRunning || r.Attempt > s.retries || j.endedHere(st.run[0].ModRevision):
			return p, Claimed, nil
		case runs && !s.timed():
			return p, StillRunning, nil // another call of the same millisecond
		case runs:
			return p, standBy, nil
		}
		p.attempt, p.mod, p.before = r.Attempt+1, st.run[0].ModRevision, string(st.run[0].Value)
	}
	switch {
	case st.foreign != "":
		return p, 0, fmt.Errorf("key %q is not a run record and keeps the job from starting: delete it", st.foreign)
	case !st.latest.IsZero():
		return p, Late, nil
	case len(st.pause) > 0:
		return p, Paused, nil
	case len(st.lock) > 0:
		return p, StillRunning, nil
	case len(st.hold) > 0:
		if p.attempt > 1 {
			return p, standBy, nil
		}
		return p, StillRunning, nil
	}
	if _, ok := agree(s.shared(), p.settings); !ok {
		if reschedules(s.shared(), p.settings) && clientv3.LeaseID(st.settings[0].Lease) == own {
			return p, 0, nil
		}
		return p, 0, &SettingsError{Job: j.name, Mine: s.shared(), Theirs: p.settings}
	}
	return p, 0, nil
}

// holder names the process that is in the way, or is "".
func (st state) holder(out Outcome) string {
	var by [][]*mvccpb.KeyValue
	switch out {
	case Claimed:
		by = append(by, st.run)
	case StillRunning:
		by = append(by, st.lock, st.hold)
	}
	for _, kvs := range by {
		if len(kvs) > 0 {
			r, _ := record.DecodeLock(kvs[0].Value) // a Run has the same field
			return r.Holder
		}
	}
	return ""
}
