package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/queue"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/requests"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/schedlock"
)

const (
	elsewhereTime       = 2 * time.Second // bounds the search for a name
	elsewhereNamespaces = 100             // how many namespaces are searched
	elsewhereLines      = 5               // how many commands are printed
)

// elsewhere returns the commands that show the name of a verb where etcd has it, if the verb has not found it: in
// another namespace, as the key of a limiter, or as something of another kind. It searches what the user may read, and
// returns nothing if etcd does not answer.
func elsewhere(ctx context.Context, c *verb.Call, cmd *cobra.Command, err error) string {
	args := cmd.Flags().Args()
	if len(args) == 0 || !notFound(err) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, elsewhereTime)
	defer cancel()
	client, err := c.Etcd.Client(ctx)
	if err != nil {
		return ""
	}
	defer verb.Close(client)
	s := newSearch(c, client, cmd, args[0])
	all := s.commands(ctx)
	if len(all) == 0 {
		return ""
	}
	if more := len(all) - elsewhereLines; more > 0 {
		all = append(all[:elsewhereLines:elsewhereLines], fmt.Sprintf("and %d more", more))
	}
	return "\netcd has the name elsewhere:\n  " + strings.Join(all, "\n  ")
}

// notFound reports whether a verb has failed because etcd does not have what it was given.
func notFound(err error) bool {
	for _, of := range []error{
		queue.ErrNoQueue, queue.ErrNothing, concurrency.ErrNoLimit, schedlock.ErrUnknownJob, requests.ErrNoStore, idempotency.ErrNotFound,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// search is a search for a name.
type search struct {
	call   *verb.Call
	client *clientv3.Client
	shows  string        // the verb that shows what the failed verb is for
	named  queue.Subject // of a job or a store the name alone
}

func newSearch(c *verb.Call, client *clientv3.Client, cmd *cobra.Command, arg string) *search {
	s := &search{c, client, showQueue, queue.Subject{Name: arg}}
	switch path := cmd.CommandPath() + " "; {
	case strings.HasPrefix(path, "etcdkit jobs "):
		s.shows = showJob
	case strings.HasPrefix(path, "etcdkit requests "):
		s.shows = showStore
	default:
		s.named, _ = queue.Parse(arg) // the verb has parsed it
	}
	return s
}

// The verbs that show what a name can be.
const (
	showQueue = "show"
	showJob   = "jobs history"
	showStore = "requests list"
)

// commands returns the commands that show the name, those of the verb's own namespace first; none if that has what the
// verb is for, whose error is about something else then.
func (s *search) commands(ctx context.Context) []string {
	own := s.call.Etcd.Namespace
	found, exact := s.in(ctx, own)
	if exact {
		return nil
	}
	root, err := keyspace.Namespaces(s.call.Etcd.Prefix)
	if err != nil {
		return found
	}
	names, _ := s.call.Etcd.NamesBelow(ctx, s.client, root, func(key string) (string, string, bool) {
		name, space, ok := keyspace.ParseNamespace(s.call.Etcd.Prefix, key)
		return name, space.Root(), ok
	})
	names = slices.DeleteFunc(names, func(name string) bool { return name == own })
	for _, name := range names[:min(len(names), elsewhereNamespaces)] {
		more, _ := s.in(ctx, name)
		found = append(found, more...)
	}
	return found
}

// in searches one namespace. exact reports whether that has what the verb is for.
func (s *search) in(ctx context.Context, namespace string) (commands []string, exact bool) {
	space, err := keyspace.New(s.call.Etcd.Prefix, namespace)
	if err != nil {
		return nil, false
	}
	places := s.places(ctx, space)
	var ops []clientv3.Op
	for _, p := range places {
		ops = append(ops, clientv3.OpGet(p.keys, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
	}
	resp, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, false
	}
	for i, p := range places {
		if len(resp.Responses[i].GetResponseRange().GetKvs()) == 0 {
			continue
		}
		name := output.ShellWord(p.name)
		if strings.HasPrefix(name, "-") {
			name = "-- " + name
		}
		commands = append(commands, fmt.Sprintf("etcdkit %s -N %s %s", p.shows, output.ShellWord(namespace), name))
		exact = exact || p.exact
	}
	return commands, exact
}

// place is where a namespace can have the name.
type place struct {
	shows, name string // the verb that shows it, and its argument
	keys        string // the range of its keys
	exact       bool   // whether it is what the failed verb is for
}

// places are all places of the name in a namespace.
func (s *search) places(ctx context.Context, space keyspace.Space) (all []place) {
	add := func(of queue.Subject, keys string) {
		exact := s.shows == showQueue && (s.named.Kind == "" && of.Key == "" || s.named == of)
		all = append(all, place{showQueue, of.String(), keys, exact})
	}
	name := s.named.Name
	if s.named.Key != "" {
		add(s.named, space.Limiter(name).KeyRange(s.named.Key))
		return all
	}
	for kind, as := range map[keyspace.Kind]concurrency.QueueKind{
		keyspace.Semaphore: concurrency.KindSemaphore, keyspace.Mutex: concurrency.KindMutex,
		keyspace.Election: concurrency.KindElection, keyspace.Rate: concurrency.KindRate,
	} {
		add(queue.Subject{Kind: as, Name: name}, space.Queue(kind, name).Range)
	}
	add(queue.Subject{Kind: concurrency.KindLimiter, Name: name}, space.Limiter(name).Range)
	limiters, _ := s.call.Etcd.NamesBelow(ctx, s.client, space.Limiters(), func(key string) (string, string, bool) {
		limiter, ok := space.ParseLimiter(key)
		return limiter, space.Limiter(limiter).Range, ok
	})
	for _, limiter := range limiters[:min(len(limiters), elsewhereNamespaces)] {
		add(queue.Subject{Kind: concurrency.KindLimiter, Name: limiter, Key: name}, space.Limiter(limiter).KeyRange(name))
	}
	slices.SortFunc(all, func(a, b place) int { return strings.Compare(a.name, b.name) })
	return append(all,
		place{showJob, name, space.Job(name).Range, s.shows == showJob},
		place{showStore, name, space.Store(name).Range, s.shows == showStore})
}
