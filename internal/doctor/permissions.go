package doctor

import (
	"context"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Grants are what a user may do in the parts of a namespace.
type Grants struct {
	Read, Write []string // parts that it may read, and write, by their names
	Parts       []string // all parts
}

// Permissions asks etcd what the user may do in a namespace, by Txns that would read and delete all of it if their
// condition were not false: etcd checks the permissions for both branches, and does nothing.
func Permissions(ctx context.Context, kv clientv3.KV, space keyspace.Space) (Grants, error) {
	all := keyspace.Parts()
	g := Grants{Parts: all}
	whole, err := permitted(ctx, kv, space.Root(), clientv3.OpDelete)
	if err != nil {
		return g, err
	}
	if whole {
		return Grants{all, all, all}, nil
	}
	for _, part := range all {
		read, err := permitted(ctx, kv, space.Root()+part, clientv3.OpGet)
		if err != nil {
			return g, err
		}
		if !read {
			continue // what is not read is of no use
		}
		g.Read = append(g.Read, part)
		write, err := permitted(ctx, kv, space.Root()+part, clientv3.OpDelete)
		if err != nil {
			return g, err
		}
		if write {
			g.Write = append(g.Write, part)
		}
	}
	return g, nil
}

// permitted reports whether the user may read all keys below a prefix, and do that to them.
func permitted(ctx context.Context, kv clientv3.KV, prefix string, op func(string, ...clientv3.OpOption) clientv3.Op) (bool, error) {
	below := never(prefix).WithRange(clientv3.GetPrefixRangeEnd(prefix))
	_, err := kv.Txn(ctx).If(below).Then(op(prefix, clientv3.WithPrefix())).Commit()
	if commit.Denied(err) && !NoUser(err) {
		return false, nil
	}
	return err == nil, err
}

// ReadsOnly reports whether the user may read all and write nothing, or nothing but what a session has of its own: the
// roles of people and dashboards.
func (g Grants) ReadsOnly() bool {
	return len(g.Read) == len(g.Parts) && (len(g.Write) == 0 || slices.Equal(g.Write, []string{keyspace.SessionPart}))
}

// lacking returns the parts that are not among those that were granted.
func (g Grants) lacking(granted []string) []string {
	return slices.DeleteFunc(slices.Clone(g.Parts), func(part string) bool { return slices.Contains(granted, part) })
}

// Findings judges what the user may do in a namespace whose keys begin with root.
func (g Grants) Findings(root string) []Finding {
	unread, unwritten := g.lacking(g.Read), g.lacking(g.Write)
	switch {
	case len(unwritten) == 0:
		return One(OK, "", "the namespace may be read and written")
	case g.ReadsOnly() && len(g.Write) == 0:
		return One(Warn, "The role of a person who looks (docs/operations.md, roles): nothing can be acquired, run or recorded with it. A service needs readwrite.",
			"the user may read the namespace, and not write it")
	case g.ReadsOnly():
		return One(Warn, "The role of a dashboard (docs/operations.md, roles): nothing can be acquired, run or recorded with it. A service needs readwrite on all of the namespace.",
			"the user may read the namespace, and write only %s", keyspace.SessionPart)
	}
	advice := "A service needs one grant for all of it: etcdctl role grant-permission ROLE readwrite --prefix " + root
	if len(unread) == len(g.Parts) {
		return One(Fail, advice, "the user may neither read nor write any part of the namespace")
	}
	text := "the user may not write " + strings.Join(unwritten, " ")
	if len(unread) > 0 {
		text += ", and may not read " + strings.Join(unread, " ")
	}
	return One(Fail, advice, "%s", text)
}
