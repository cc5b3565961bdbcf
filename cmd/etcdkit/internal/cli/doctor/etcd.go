package doctor

import (
	"context"

	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// times is how many reads and writes are measured.
const times = 5

// endpoints asks each endpoint by itself. The checks of members and alarms judge the same answers.
func (d *examination) endpoints(ctx context.Context) []finding {
	d.survey = doctor.Ask(ctx, d.client, d.call.Etcd.Timeout, d.slow)
	d.mute, d.cut = d.survey.Mute(), d.survey.Foreign()
	return d.survey.Endpoints()
}

func (d *examination) members(context.Context) []finding { return d.survey.Members() }

func (d *examination) alarms(context.Context) []finding { return doctor.Alarms(d.survey) }

// key is one that the user may read: of the namespace, or the beginning of all of them.
func (d *examination) key() (string, error) {
	if space, err := d.call.Etcd.Space(); err == nil {
		return space.Root(), nil
	}
	return keyspace.Namespaces(d.call.Etcd.Prefix)
}

// ofKey is a check of a key that the user may read.
func (d *examination) ofKey(judge func(key string) []finding) []finding {
	key, err := d.key()
	if err != nil {
		return one(levelFail, "Correct --prefix.", "%v", err)
	}
	return judge(key)
}

// majority reads with a majority.
func (d *examination) majority(ctx context.Context) []finding {
	return d.ofKey(func(key string) (found []finding) {
		var err error
		if d.reads, err = doctor.Reads(ctx, d.client, key, times); err != nil {
			d.survey = d.survey.Again(ctx, d.client)
		}
		found, d.cut = d.survey.Majority(d.reads, err)
		return found
	})
}

// writes has a majority store what changes nothing.
func (d *examination) writes(ctx context.Context) []finding {
	return d.ofKey(func(key string) []finding {
		took, err := doctor.Writes(ctx, d.client, key, times)
		return d.survey.Writing(d.reads, took, err)
	})
}

func (d *examination) compaction(ctx context.Context) []finding {
	return d.ofKey(func(key string) []finding { return doctor.Compaction(ctx, d.client, key, d.old) })
}

func (d *examination) streams(ctx context.Context) []finding { return doctor.Streams(ctx, d.client) }

func (d *examination) leases(ctx context.Context) []finding { return doctor.Leases(ctx, d.client) }

// auth reports whether users are checked.
func (d *examination) auth(ctx context.Context) (found []finding) {
	found, d.cut = doctor.Users(ctx, d.client)
	return found
}

// permissions examines what the user may do in the namespace.
func (d *examination) permissions(ctx context.Context) []finding {
	space, err := d.call.Etcd.Space()
	if err != nil {
		return notMade("permissions", err)
	}
	d.grants, err = doctor.Permissions(ctx, d.client, space)
	if err != nil {
		return notMade("permissions", err)
	}
	return d.grants.Findings(space.Root())
}
