// Package requests has the verb requests: it shows the records of idempotent requests, and records what an operator
// has found out about them.
package requests

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
)

// Requests returns the verb requests.
func Requests(c *verb.Call) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "requests",
		Short: "List the stores of idempotent requests; list, show, resolve and delete their records",
		Long: `List the stores of package idempotency in a namespace. KEYS counts records; an attempt in progress counts
twice. UNKNOWN and UNREADABLE want an operator: duplicates of the former are refused; "-" was not read: in time, or in a store with
more than 5000 keys without --all, which reads all records however long that takes.

The subcommands show and change the records of a store. A record is named by its reference, REF, which
is a hash: the idempotency keys of clients are not stored.`,
		Example: "etcdkit requests -N payments\n" +
			"etcdkit requests list -N payments orders --state unknown\n" +
			"etcdkit requests stats -N payments orders",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return listStores(cmd.Context(), c, all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "count UNKNOWN and UNREADABLE in stores with more than 5000 keys as well")
	cmd.AddCommand(requestList(c), requestStats(c), requestGet(c), requestResolve(c), requestDelete(c))
	return cmd
}

func listStores(ctx context.Context, c *verb.Call, all bool) error {
	space, err := c.Etcd.Space()
	if err != nil {
		return err
	}
	stores := []shownStore{}
	err = c.WithClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		names, err := c.Etcd.NamesBelow(ctx, client, space.Stores(), func(key string) (string, string, bool) {
			name, ok := space.ParseStore(key)
			return name, space.Store(name).Range, ok
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			resp, err := client.Get(ctx, space.Store(name).Records(), clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				return c.Etcd.Unreachable(err)
			}
			stores = append(stores, shownStore{Name: name, Keys: resp.Count})
		}
		return nil
	})
	if err != nil {
		return err
	}
	uncounted := countStates(ctx, c, stores, all)
	if len(stores) == 0 {
		fmt.Fprintf(c.Std.Err, "etcd has no request in namespace %s: 'etcdkit ls' without -N lists the namespaces\n", output.ShellWord(c.Etcd.Namespace))
	}
	err = c.Print(struct {
		output.Form
		Stores []shownStore `json:"stores"`
	}{output.FormOf("stores"), stores}, func(t *output.Table) {
		t.Row("STORE", "KEYS", "UNKNOWN", "UNREADABLE")
		for _, s := range stores {
			t.Row(s.Name, s.Keys, known(s.Unknown), known(s.Unreadable))
		}
	})
	return cmp.Or(err, uncounted)
}

// shownStore is a store as JSON.
type shownStore struct {
	Name       string `json:"name"`
	Keys       int64  `json:"keys"`
	Unknown    *int   `json:"unknown"`    // records whose duplicates are refused, as etcdkit_requests counts them; nil: not read
	Unreadable *int   `json:"unreadable"` // records
}

func known(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// mostCounted is the number of keys of a store up to which its records are read without --all.
const mostCounted = 5000

// countStates reads the records of stores, as far as etcd answers and permits it within --command-timeout; with all, those of
// large stores as well, without a bound. Then it returns why one could not be read, if it could not.
func countStates(ctx context.Context, c *verb.Call, stores []shownStore, all bool) (failed error) {
	large := func(s shownStore) bool { return s.Keys > mostCounted && !all }
	if slices.ContainsFunc(stores, large) {
		fmt.Fprintf(c.Std.Err, "UNKNOWN and UNREADABLE are not counted in stores with more than %d keys: --all reads all records\n", mostCounted)
	}
	if !slices.ContainsFunc(stores, func(s shownStore) bool { return !large(s) }) {
		return nil
	}
	if !all {
		bounded, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
		defer cancel()
		ctx = bounded
	}
	err := c.Open(ctx, "requests", &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		for i, of := range stores {
			if large(of) {
				continue
			}
			s, err := idempotency.NewStore(sess, of.Name, nil)
			if err != nil {
				continue
			}
			unknown, unreadable := 0, 0
			for r, e := range s.List(ctx, idempotency.Filter{}) {
				switch err = e; {
				case err != nil:
				case r.State == idempotency.Unknown && r.Refuse:
					unknown++
				case r.State == idempotency.Unreadable:
					unreadable++
				}
			}
			if err == nil {
				stores[i].Unknown, stores[i].Unreadable = &unknown, &unreadable
			}
			failed = cmp.Or(failed, err)
		}
		return nil
	})
	if !all {
		return nil
	}
	return cmp.Or(failed, err)
}

// store runs fn with a store on a session, without a bound of its time.
func store(ctx context.Context, c *verb.Call, as, name string, fn func(context.Context, *idempotency.Store) error) error {
	return changing(ctx, c, as, name, func(ctx context.Context, _ *concurrency.Session, s *idempotency.Store) error { return fn(ctx, s) })
}

// changing is store for a change, which the session accounts for.
func changing(ctx context.Context, c *verb.Call, as, name string, fn func(context.Context, *concurrency.Session, *idempotency.Store) error) error {
	return c.Open(ctx, as, &concurrency.SessionOptions{}, func(ctx context.Context, sess *concurrency.Session) error {
		s, err := idempotency.NewStore(sess, name, nil)
		if err != nil {
			return err
		}
		return fn(ctx, sess, s)
	})
}

// states are the states of requests as arguments and JSON have them, in the order of a report.
var states = []struct {
	name  string
	state idempotency.State
}{
	{"in-progress", idempotency.InProgress}, {"unknown", idempotency.Unknown}, {"failed", idempotency.Failed},
	{"done", idempotency.Done}, {"released", idempotency.Released}, {"unreadable", idempotency.Unreadable},
}

func nameOf(state idempotency.State) string {
	for _, s := range states {
		if s.state == state {
			return s.name
		}
	}
	return state.String()
}

func stateNamed(name string) (idempotency.State, error) {
	var all []string
	for _, s := range states {
		if s.name == name {
			return s.state, nil
		}
		all = append(all, s.name)
	}
	return 0, exit.Usagef("--state %q is none of %s", name, strings.Join(all, ", "))
}

// shownRecord is the record of a request as JSON.
type shownRecord struct {
	output.Form
	Ref      idempotency.Ref `json:"ref"`
	State    string          `json:"state"`
	Scope    string          `json:"scope"`
	Op       string          `json:"op"`
	Via      string          `json:"via,omitempty"`
	Returns  string          `json:"returns,omitempty"`
	Note     string          `json:"note,omitempty"`
	Attempt  int             `json:"attempt"`
	Token    output.Number   `json:"token,omitzero"` // of an attempt that has ended
	Owner    string          `json:"owner,omitempty"`
	Started  time.Time       `json:"started,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	Failure  string          `json:"failure,omitempty"`
	Bytes    int             `json:"result_bytes"`
	Omitted  bool            `json:"result_omitted"`
	Codec    string          `json:"codec,omitempty"`
	Refuse   bool            `json:"refuse"`
	Alive    bool            `json:"process_alive,omitempty"` // of an attempt in progress, or lost
	Steps    []string        `json:"steps,omitempty"`
	Resolved string          `json:"resolved_by,omitempty"`
	Earlier  []earlier       `json:"earlier,omitempty"`
	Revision output.Number   `json:"revision"`
}

// earlier is an outcome that an operator has recorded, and that was replaced since.
type earlier struct {
	State   string    `json:"state"`
	By      string    `json:"resolved_by"`
	At      time.Time `json:"resolved"`
	Failure string    `json:"failure,omitempty"`
}

func showRecord(r idempotency.Record) shownRecord {
	s := shownRecord{
		output.FormOf("request"), r.Ref, nameOf(r.State), r.Scope, r.Op, r.Via, r.Returns, r.Note, r.Attempt,
		output.Number(r.Token), r.Owner, r.Started, r.Ended, r.Failure, r.Bytes, r.Omitted, r.Codec, r.Refuse, r.Alive,
		r.Steps, r.Resolved, nil, output.Number(r.Revision),
	}
	for _, was := range r.Earlier {
		s.Earlier = append(s.Earlier, earlier{nameOf(was.State), was.By, was.At.UTC(), was.Failure})
	}
	if !r.Started.IsZero() {
		s.Started = r.Started.UTC()
	}
	if !r.Ended.IsZero() {
		s.Ended = r.Ended.UTC()
	}
	return s
}
