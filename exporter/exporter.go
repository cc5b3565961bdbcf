package exporter

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/members"
)

// Exporter is a prometheus.Collector of the state of one namespace. The caller registers it, and
// calls Run. It is safe for concurrent use.
type Exporter struct {
	space keyspace.Space
	opts  Options
	descs descs
	etcd  *members.Etcd // it ends with the caller's client
	fleet *fleet.Fleet
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
		return nil, fmt.Errorf("exporter: new exporter of %q: %w", namespace, err)
	}
	space, err := keyspace.New(o.Prefix, namespace)
	if err != nil {
		return nil, fmt.Errorf("exporter: new exporter of %q: %w", namespace, invalid("%w", err))
	}
	etcd := members.Of(client, o.Logger, nil)
	return &Exporter{
		space: space, opts: o, descs: newDescs(namespace), etcd: etcd,
		fleet: fleet.New(etcd.KV, etcd.Watcher, space, fleet.Options{Probe: o.Probe, Refresh: o.Refresh, Logger: o.Logger, Now: o.Now}),
	}, nil
}

// Up reports whether etcd has confirmed the published state within three times Options.Probe, as etcdkit_exporter_up does. It
// computes no metrics, so a health check may call it often, however many names the namespace has.
func (e *Exporter) Up() bool { return e.fleet.Meta().Up }

// Run follows the namespace until ctx ends, and returns ctx's error. Every failure (a lost connection,
// a compacted revision, a missing permission) is repeated with a growing pause and then the namespace
// is read again; meanwhile etcdkit_exporter_up becomes 0. A second call while Run is active returns
// ErrInvalid. After Run has returned, it may be called again.
func (e *Exporter) Run(ctx context.Context) error {
	defer e.etcd.Await()()
	err := e.fleet.Run(ctx)
	if errors.Is(err, fleet.ErrActive) {
		return fmt.Errorf("exporter: run exporter of %q: %w", e.space.Root(), invalid("Run is active already"))
	}
	return err
}
