// Package queues has the verbs that look at the queues of a namespace and set their limits: ls, show, top, limit
// and elections.
package queues

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
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

// Ls returns the verb ls.
func Ls(c *verb.Call) *cobra.Command {
	return &cobra.Command{
		Use:        "ls",
		SuggestFor: []string{"list", "queues", "namespaces"},
		Short:      "List the queues of a namespace, or the namespaces",
		Long: `List the semaphores, limiters, mutexes, elections and rate limiters that have something in etcd.
Without --namespace, list the namespaces below --prefix; where ETCDKIT_NAMESPACE is set, set it empty for that.`,
		Example: "etcdkit ls\netcdkit ls -N payments\netcdkit ls -N payments -o json",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Etcd.Namespace == "" {
				return listNamespaces(cmd.Context(), c)
			}
			return c.Open(cmd.Context(), "ls", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
				return List(ctx, c, sess)
			})
		},
	}
}

// List prints the queues of the session's namespace, and waits for each answer as long as --command-timeout. It
// returns an error of etcd, and of ctx.
func List(ctx context.Context, c *verb.Call, sess *concurrency.Session) error {
	ctx, alive, cancel := c.Patience(ctx) // there may be many
	defer cancel()
	p := c.Progress()
	defer p.End()
	queues := []listedQueue{}
	for q, err := range sess.Queues(ctx) {
		if err != nil {
			return verb.Because(ctx, err)
		}
		alive()
		queues = append(queues, listedQueue{q.Kind, q.Name, q.Stored, q.Requests})
		p.Set("%d queues read", len(queues))
	}
	p.End()
	if len(queues) == 0 {
		fmt.Fprintf(c.Std.Err, "etcd has no queue in namespace %s: 'etcdkit ls' without -N lists the namespaces, 'etcdkit jobs' and "+
			"'etcdkit requests' what else one has\n", output.ShellWord(c.Etcd.Namespace))
	}
	return c.Print(struct {
		output.Form
		Queues []listedQueue `json:"queues"`
	}{output.FormOf("queues"), queues}, func(t *output.Table) {
		t.Row("KIND/NAME", "REQUESTS")
		for _, q := range queues {
			t.Row(queue.Subject{Kind: q.Kind, Name: q.Name}, q.Requests)
		}
	})
}

// listNamespaces reads one key of each namespace.
func listNamespaces(ctx context.Context, c *verb.Call) error {
	root, err := keyspace.Namespaces(c.Etcd.Prefix)
	if err != nil {
		return exit.AsUsage(err)
	}
	var names []string
	err = c.WithClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		names, err = c.Etcd.NamesBelow(ctx, client, root, func(key string) (string, string, bool) {
			name, space, ok := keyspace.ParseNamespace(c.Etcd.Prefix, key)
			return name, space.Root(), ok
		})
		return err
	})
	if err != nil {
		return err
	}
	if len(names) == 0 {
		fmt.Fprintln(c.Std.Err, "etcd has no namespace below --prefix, which is the SessionOptions.Prefix of the services")
	}
	return c.Print(struct {
		output.Form
		Namespaces []string `json:"namespaces"`
	}{output.FormOf("namespaces"), names}, func(t *output.Table) {
		t.Row("NAMESPACE")
		for _, name := range names {
			t.Row(name)
		}
	})
}
