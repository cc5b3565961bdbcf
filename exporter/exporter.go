package exporter

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/mirror"
)

// Exporter is a prometheus.Collector of the state of one namespace. The caller registers it, and
// calls Run. It is safe for concurrent use.
type Exporter struct {
	kv     clientv3.KV
	space  keyspace.Space
	opts   Options
	source *mirror.Source
	descs  descs
	page   int64 // keys that are read at once

	running atomic.Bool

	mu       sync.Mutex
	state    *state
	revision int64     // up to which state is complete
	answered time.Time // etcd's latest answer, by the monotonic clock of this process; zero before the first
	lists    int64
	silent   bool // the present failure has been logged
}

// New returns a collector of the state of a namespace: the argument of concurrency.NewSession. It
// sends nothing to etcd, see Run. It returns ErrInvalid if an argument is out of range. The client
// belongs to the caller, and must stay open until Run has returned.
func New(client *clientv3.Client, namespace string, opts *Options) (*Exporter, error) {
	o, err := opts.withDefaults()
	if err == nil && client == nil {
		err = invalid("the client is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("new exporter: %w", err)
	}
	space, err := keyspace.New(o.Prefix, namespace)
	if err != nil {
		return nil, fmt.Errorf("new exporter: %w", invalid("%w", err))
	}
	return &Exporter{
		kv: client.KV, space: space, opts: o, descs: newDescs(namespace), page: pageSize,
		source: &mirror.Source{KV: client.KV, Watcher: client.Watcher, Log: o.Logger},
	}, nil
}

// now returns the time in milliseconds, which is how etcdkit stores times.
func (e *Exporter) now() int64 { return e.opts.Now().UnixMilli() }
