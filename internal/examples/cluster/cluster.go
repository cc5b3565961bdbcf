// Package cluster provides the etcd on which the examples run: the one that the flag -endpoints
// names, with the flags of etcdctl for TLS and users, or an embedded one that runs as long as the program.
package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/etcdflags"
)

// Etcd is where etcd is. Without endpoints it is an embedded one, until Open. A program passes what Open
// returns to its child processes, as JSON.
type Etcd struct {
	etcdflags.Connection
}

// At returns the etcd at some endpoints, without TLS and users.
func At(endpoints ...string) Etcd {
	return Etcd{etcdflags.Connection{Endpoints: endpoints, InsecureTransport: true}}
}

// Define defines the flags -endpoints, -cacert, -user and so on, as etcdctl has them.
func (e *Etcd) Define(f *flag.FlagSet) {
	f.Func("endpoints", "etcd's `endpoints`, separated by commas (default: an embedded etcd)", func(value string) error {
		e.Endpoints = split(value)
		return nil
	})
	e.Connection.Define(f)
	f.Lookup("user").Usage = "user `name:password`, or a name with -password or ETCDCTL_PASSWORD"
}

// Parse parses the arguments. Flags of etcdctl that are not given are set from its environment variables.
// There are no other arguments. The flags must suffice to make a client.
func (e *Etcd) Parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	given := map[string]bool{}
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	err := etcdflags.Check(func(name string) (string, bool) {
		if name == "endpoints" {
			return strings.Join(e.Endpoints, ","), given[name]
		}
		if one := f.Lookup(name); one != nil {
			return one.Value.String(), given[name]
		}
		return "", false
	})
	f.VisitAll(func(one *flag.Flag) {
		if err == nil && !given[one.Name] {
			err = etcdflags.FromVariable(etcdflags.Variable(one.Name), one.Name, f.Set)
		}
	})
	if err == nil && len(e.Endpoints) > 0 {
		_, err = e.config()
	}
	return err
}

// config is that of a client. The examples do not ask for a password.
func (e Etcd) config() (*clientv3.Config, error) {
	e.DialTimeout = 5 * time.Second
	return e.Config(etcdflags.NoTerminal)
}

// Open returns etcd, of which it starts one with some members if there are no endpoints. stop stops
// that and removes its data. own is nil for given endpoints, whose members the program must leave alone; these
// it names on standard error. Open returns an error if an embedded etcd cannot be started.
func (e Etcd) Open(ctx context.Context, members int) (opened Etcd, own *embedtest.Cluster, stop func(), err error) {
	if len(e.Endpoints) > 0 {
		fmt.Fprintf(os.Stderr, "etcd at %s\n", strings.Join(e.Endpoints, ","))
		return e, nil, func() {}, nil
	}
	if own, err = embedtest.New(ctx, &embedtest.Options{Members: members}); err != nil {
		return e, nil, nil, fmt.Errorf("start an embedded etcd: %w", err)
	}
	return At(own.Endpoints()...), own, func() { _ = own.Close() }, nil
}

// Dial returns a client. It returns an error for an invalid endpoint, a file that cannot be read, and if etcd
// refuses the user. Without a user, the first request shows whether etcd is reachable.
func (e Etcd) Dial() (*clientv3.Client, error) {
	config, err := e.config()
	if err != nil {
		return nil, err
	}
	return clientv3.New(*config)
}

func split(endpoints string) (found []string) {
	for e := range strings.SplitSeq(endpoints, ",") {
		if e = strings.TrimSpace(e); e != "" {
			found = append(found, e)
		}
	}
	return found
}
