package fleet

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// users are the live processes that have jobs by Locker.Job or gocronlock.Cron.Plan.
type users struct {
	of     map[string][]string // the names of jobs, by the key that has them
	have   map[string]int      // how many processes have a job, by its name
	unread map[string]bool     // the keys of later releases: their processes may have any job
}

// change adds, replaces or removes a key with names of jobs.
func (u *users) change(key string, kv *mvccpb.KeyValue) {
	for _, name := range u.of[key] {
		if u.have[name]--; u.have[name] == 0 {
			delete(u.have, name)
		}
	}
	delete(u.of, key)
	delete(u.unread, key)
	if kv == nil {
		return
	}
	r, ok := record.DecodeUser(kv.Value)
	if !ok && record.Later(kv.Value) > 0 {
		u.unread[key] = true
	}
	u.of[key] = r.Jobs
	for _, name := range r.Jobs {
		u.have[name]++
	}
}
