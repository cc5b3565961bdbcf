package doctor

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// Foreign looks for keys of a namespace that are not etcdkit's, outside of queues and jobs. It returns how many keys it
// has read, also if an error has come.
func Foreign(ctx context.Context, kv clientv3.KV, space keyspace.Space) (found []Finding, read int, err error) {
	const page = 1000
	var keys ForeignKeys
	for from, end := space.Root(), clientv3.GetPrefixRangeEnd(space.Root()); ; {
		resp, err := kv.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithKeysOnly())
		if err != nil {
			return nil, read, err
		}
		for _, kv := range resp.Kvs {
			read++
			from = string(kv.Key) + "\x00"
			keys.Look(space, string(kv.Key))
		}
		if !resp.More {
			break
		}
	}
	return keys.Findings(), read, nil
}

// mostNamed is how many foreign keys a finding names.
const mostNamed = 5

// quotedKeys names some of the keys.
func quotedKeys(keys []string) string {
	var names []string
	for _, key := range keys[:min(len(keys), mostNamed)] {
		names = append(names, fmt.Sprintf("%q", key))
	}
	if len(keys) > mostNamed {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// ForeignKeys are those that were looked at.
type ForeignKeys struct {
	names []string // some of them
	count int
	later int // keys of a later release, which are not foreign
}

// Look looks at a key of a namespace, in the order of the keys.
func (f *ForeignKeys) Look(space keyspace.Space, key string) {
	if keyspace.Later(space, key) {
		f.later++
	}
	if !keyspace.Foreign(space, key) {
		return
	}
	if f.count++; f.count <= mostNamed {
		f.names = append(f.names, fmt.Sprintf("%q", strings.TrimPrefix(key, space.Root())))
	} else if f.count == mostNamed+1 {
		f.names = append(f.names, "…")
	}
}

// Findings returns what was found.
func (f *ForeignKeys) Findings() (found []Finding) {
	if f.later > 0 {
		found = One(Note, "Leave them, and update the command, the console and the exporter: processes of that release use them.", "%s of a later release", count(f.later, "key", "keys"))
	}
	if f.count == 0 {
		return append(found, One(OK, "", "none outside of queues and jobs is foreign")...)
	}
	return append(found, One(Warn, "Such a key is ignored, and never expires: find the program that writes it, and delete it with etcdctl.", "foreign keys (%d): %s", f.count, strings.Join(f.names, ", "))...)
}
