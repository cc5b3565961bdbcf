package schedlock

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/record"
)

// state is what may keep a tick from being claimed, as of one revision.
type state struct {
	lock, cooldown, pause, settings, run []*mvccpb.KeyValue
	requested                            []*mvccpb.KeyValue
	latest                               time.Time          // the latest tick after this one that was claimed, or the latest up to which records were removed
	near                                 []*mvccpb.KeyValue // the latest of the ticks shortly before this one that keep it from being claimed
	foreign                              string             // a key among them that is not one of a tick
	endedHere                            bool               // run belongs to a run of this process whose end etcd has not confirmed
}

// look reads what may keep the tick from being claimed.
func (k *claim) look(ctx context.Context, tick time.Time) (st state, err error) {
	j, since := k.job, k.since(tick)
	run := j.keys.Run(tick)
	last := []clientv3.OpOption{clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)}
	kvs, err := k.get(ctx, func() []clientv3.Op {
		ops := []clientv3.Op{
			clientv3.OpGet(j.keys.Lock()), clientv3.OpGet(j.keys.Cooldown()), clientv3.OpGet(j.keys.Pause()),
			clientv3.OpGet(j.keys.Settings()), clientv3.OpGet(run),
			clientv3.OpGet(run+"\x00", append(slices.Clone(last), clientv3.WithRange(j.keys.Run(k.horizon())))...),
			clientv3.OpGet(j.keys.Floor(tick), append(slices.Clone(last), clientv3.WithRange(clientv3.GetPrefixRangeEnd(j.keys.Floors())))...),
			clientv3.OpGet(j.keys.RequestedRun(), clientv3.WithKeysOnly()),
		}
		if since.Before(tick) {
			ops = append(ops, clientv3.OpGet(j.keys.Run(since), clientv3.WithRange(run), clientv3.WithLimit(1), clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)))
		}
		return ops
	})
	if err != nil {
		return st, err
	}
	ok := false
	st = state{lock: kvs[0], cooldown: kvs[1], pause: kvs[2], settings: kvs[3], run: kvs[4], requested: kvs[7]}
	if since.Before(tick) {
		st.near = kvs[len(kvs)-1]
	}
	if len(st.run) > 0 {
		r, _ := record.DecodeRun(st.run[0].Value)
		st.endedHere = j.endedHere(tokenAt(st.run[0], r))
	}
	if len(kvs[5]) > 0 {
		if st.latest, ok = j.keys.ParseRun(string(kvs[5][0].Key)); !ok {
			st.foreign = string(kvs[5][0].Key)
		}
	}
	if len(kvs[6]) > 0 {
		floor, ok := j.keys.ParseFloor(string(kvs[6][0].Key))
		if !ok {
			st.foreign = string(kvs[6][0].Key)
		}
		if floor.After(st.latest) {
			st.latest = floor
		}
	}
	return st, nil
}
