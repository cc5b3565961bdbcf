package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// completionTime bounds what a press of the tab key waits for etcd.
const completionTime = 2 * time.Second

// complete lets shells complete the names of queues, jobs and stores, and of namespaces, from etcd.
func complete(c *verb.Call, root *cobra.Command) {
	jobs := func(s keyspace.Space) []listing {
		return []listing{{"", s.Jobs(), func(key string) (string, string, bool) {
			name, _, ok := s.ParseJob(key)
			return name, s.Job(name).Range, ok
		}}}
	}
	stores := func(s keyspace.Space) []listing {
		return []listing{{"", s.Stores(), func(key string) (string, string, bool) {
			name, ok := s.ParseStore(key)
			return name, s.Store(name).Range, ok
		}}}
	}
	changed := func(s keyspace.Space) []listing {
		of := append(queuesIn(s), jobs(s)...)
		of[len(of)-1].before = "job/"
		of = append(of, stores(s)...)
		of[len(of)-1].before = "requests/"
		return of
	}
	for path, names := range map[string]func(keyspace.Space) []listing{
		"show": queuesIn, "limit": queuesIn, "changes": changed, "evict": queuesIn, "release": queuesIn, "run": nil, "hold": nil,
		"elections step-down": namesOf(keyspace.Election),
		"jobs history":        jobs, "jobs watch": jobs, "jobs pause": jobs, "jobs resume": jobs, "jobs unlock": jobs,
		"jobs forget": jobs, "jobs trigger": jobs, "jobs run": jobs,
		"requests list": stores, "requests stats": stores, "requests get": stores, "requests resolve": stores, "requests delete": stores,
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil && cmd.CommandPath() == "etcdkit "+path {
			cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				switch {
				case len(args) > 0 && (path == "run" || path == "jobs run"): // its command
					return nil, cobra.ShellCompDirectiveDefault
				case len(args) > 0:
					return nil, cobra.ShellCompDirectiveNoFileComp
				case names == nil:
					return namesFor(cmd, c, typed, namesOf(wanted(cmd.Flags()))), cobra.ShellCompDirectiveNoFileComp
				}
				return namesFor(cmd, c, typed, names), cobra.ShellCompDirectiveNoFileComp
			}
		}
	}
	root.InitDefaultCompletionCmd()
	if cmd, _, err := root.Find([]string{"completion"}); err == nil {
		cmd.Example = "source <(etcdkit completion bash)\netcdkit completion zsh > \"${fpath[1]}/_etcdkit\""
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // without it, each argument is accepted
	}
	_ = root.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return namesFor(cmd, c, typed, nil), cobra.ShellCompDirectiveNoFileComp
	})
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// listing is a range of keys with names.
type listing struct {
	before string // of a completed name, such as "mutex/"
	root   string
	parse  func(key string) (name, all string, ok bool)
}

// queuesIn are the ranges of the queues.
func queuesIn(s keyspace.Space) []listing {
	limiters := listing{string(concurrency.KindLimiter) + "/", s.Limiters(), func(key string) (string, string, bool) {
		name, ok := s.ParseLimiter(key)
		return name, s.Limiter(name).Range, ok
	}}
	return []listing{
		ofKind(s, keyspace.Semaphore, concurrency.KindSemaphore), limiters, ofKind(s, keyspace.Mutex, concurrency.KindMutex),
		ofKind(s, keyspace.Election, concurrency.KindElection), ofKind(s, keyspace.Rate, concurrency.KindRate),
	}
}

// namesOf are the names of one kind, without the kind.
func namesOf(kind keyspace.Kind) func(keyspace.Space) []listing {
	return func(s keyspace.Space) []listing {
		of := ofKind(s, kind, "")
		of.before = ""
		return []listing{of}
	}
}

// wanted returns the kind of queue that the flags of run or hold ask for.
func wanted(f *pflag.FlagSet) keyspace.Kind {
	switch {
	case f.Changed("limit"):
		return keyspace.Semaphore
	case f.Changed("leader"):
		return keyspace.Election
	}
	return keyspace.Mutex
}

func ofKind(s keyspace.Space, kind keyspace.Kind, as concurrency.QueueKind) listing {
	return listing{string(as) + "/", s.Queues(kind), func(key string) (string, string, bool) {
		name, ok := s.ParseQueue(kind, key)
		return name, s.Queue(kind, name).Range, ok
	}}
}

// namesFor returns the names in etcd that begin with what was typed and need no quotes: those of listings, or of
// namespaces without them. It reads one key of each, and returns nothing if etcd does not answer, or a password
// would have to be asked for.
func namesFor(cmd *cobra.Command, c *verb.Call, typed string, in func(keyspace.Space) []listing) (found []string) {
	err := cmp.Or(verb.CheckConnection(cmd.Flags()), verb.FromEnvironment(cmd.Flags()))
	asks := c.Etcd.User != "" && c.Etcd.Password == "" && !strings.Contains(c.Etcd.User, ":")
	if err != nil || asks {
		return nil
	}
	var of []listing
	if in == nil {
		root, err := keyspace.Namespaces(c.Etcd.Prefix)
		if err != nil {
			return nil
		}
		of = []listing{{"", root, func(key string) (string, string, bool) {
			name, space, ok := keyspace.ParseNamespace(c.Etcd.Prefix, key)
			return name, space.Root(), ok
		}}}
	} else {
		space, err := c.Etcd.Space()
		if err != nil {
			return nil
		}
		of = in(space)
	}
	client, err := c.Etcd.Client(cmd.Context())
	if err != nil {
		return nil
	}
	defer verb.Close(client)
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	for _, l := range of {
		names, err := c.Etcd.NamesBelow(ctx, client, l.root, l.parse)
		if err != nil {
			return found
		}
		for _, name := range names {
			// A shell evaluates what it completes: a name that is not one plain word could be a program of another's.
			if name = l.before + name; strings.HasPrefix(name, typed) && output.ShellWord(name) == name {
				found = append(found, name)
			}
		}
	}
	return found
}
