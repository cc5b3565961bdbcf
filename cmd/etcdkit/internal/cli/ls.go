package cli

import (
	"context"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// listedQueue is one line of `ls`.
type listedQueue struct {
	Kind     concurrency.QueueKind `json:"kind"`
	Name     string                `json:"name"`
	Stored   bool                  `json:"stored"`
	Requests int                   `json:"requests"`
}

func (a *app) ls() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the queues of a namespace, or the namespaces",
		Long: `List the semaphores, limiters, mutexes, elections and rate limiters that have something in etcd.
Without --namespace, list the namespaces below --prefix; where ETCDKIT_NAMESPACE is set, set it empty for that.`,
		Example: "etcdkit ls\netcdkit ls -N payments\netcdkit ls -N payments -o json",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.etcd.namespace == "" {
				return a.listNamespaces(cmd.Context())
			}
			return a.open(cmd.Context(), "ls", &concurrency.SessionOptions{}, a.listQueues)
		},
	}
}

func (a *app) listQueues(ctx context.Context, sess *concurrency.Session) error {
	ctx, alive, cancel := a.patience(ctx) // there may be many
	defer cancel()
	p := a.progress()
	defer p.end()
	queues := []listedQueue{}
	for q, err := range sess.Queues(ctx) {
		if err != nil {
			return because(ctx, err)
		}
		alive()
		queues = append(queues, listedQueue{q.Kind, q.Name, q.Stored, q.Requests})
		p.set("%d queues read", len(queues))
	}
	p.end()
	return a.print(struct {
		schema
		Queues []listedQueue `json:"queues"`
	}{schemaOf("queues"), queues}, func(t *table) {
		t.row("KIND/NAME", "REQUESTS")
		for _, q := range queues {
			t.row(subject{kind: q.Kind, name: q.Name}, q.Requests)
		}
	})
}

// listNamespaces reads one key of each namespace.
func (a *app) listNamespaces(ctx context.Context) error {
	root, err := keyspace.Namespaces(a.etcd.prefix)
	if err != nil {
		return usageError{err}
	}
	var names []string
	err = a.withClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		names, err = a.etcd.namesBelow(ctx, client, root, func(key string) (string, string, bool) {
			name, space, ok := keyspace.ParseNamespace(a.etcd.prefix, key)
			return name, space.Root(), ok
		})
		return err
	})
	if err != nil {
		return err
	}
	return a.print(struct {
		schema
		Namespaces []string `json:"namespaces"`
	}{schemaOf("namespaces"), names}, func(t *table) {
		t.row("NAMESPACE")
		for _, name := range names {
			t.row(name)
		}
	})
}
