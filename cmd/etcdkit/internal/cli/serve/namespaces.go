package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/keyspace"
	"github.com/etcdkit/etcdkit/internal/webguard"
)

// mostNamespaces bounds the namespaces of which a command serves consoles: each has a session, with a watch of its own.
const mostNamespaces = 32

// namespaces serves the consoles of the namespaces below one prefix: that of the command, and of each other one from the
// first request for it on, below in/@NAME/. An @ is in front of the name, since a browser resolves a path of dots. No
// session has a lease: actions need none, and a name that was typed wrongly leaves nothing in etcd.
type namespaces struct {
	ctx    context.Context
	call   *verb.Call
	client *clientv3.Client
	opts   console.Options
	own    string

	opening  sync.Mutex // is held while a session is opened, for which no other namespace waits
	mu       sync.Mutex
	consoles map[string]http.Handler
	sessions []*concurrency.Session // that were opened here
}

// add serves the console of a namespace.
func (n *namespaces) add(name string, sess *concurrency.Session) error {
	opts := n.opts
	up := ""
	if name != n.own {
		up = "../../"
	}
	opts.Elsewhere = func(other string) string {
		if other == n.own {
			return up
		}
		return up + "in/@" + url.PathEscape(other) + "/"
	}
	h, err := console.Handler(sess, &opts)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.consoles == nil {
		n.consoles = map[string]http.Handler{}
	}
	n.consoles[name] = h
	return nil
}

// ServeHTTP implements http.Handler.
func (n *namespaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, below := n.own, r
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/in/@"); ok {
		segment, path, slash := strings.Cut(rest, "/")
		unescaped, err := url.PathUnescape(segment)
		to, wrong := url.PathUnescape("/" + path)
		if err != nil || wrong != nil || !slash {
			webguard.SetHeaders(w.Header().Set, r.Header.Get("Sec-Fetch-Dest"))
			http.NotFound(w, r)
			return
		}
		name, below = unescaped, r.Clone(r.Context())
		below.URL.Path, below.URL.RawPath = to, ""
	}
	h, err := n.of(name)
	if err != nil {
		webguard.SetHeaders(w.Header().Set, r.Header.Get("Sec-Fetch-Dest"))
		code := http.StatusBadGateway
		if errors.Is(err, errNoNamespace) {
			code = http.StatusNotFound
		}
		http.Error(w, err.Error(), code)
		return
	}
	h.ServeHTTP(w, below)
}

// of returns the console of a namespace, and opens its session at the first call.
func (n *namespaces) of(name string) (http.Handler, error) {
	if h, _ := n.known(name); h != nil {
		return h, nil
	}
	n.opening.Lock()
	defer n.opening.Unlock()
	h, served := n.known(name)
	if h != nil {
		return h, nil
	}
	if served >= mostNamespaces {
		return nil, fmt.Errorf("this command serves %d namespaces already: start another one with -N %s", mostNamespaces, name)
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.call.Etcd.Timeout)
	defer cancel()
	if err := n.exists(ctx, name); err != nil {
		return nil, err
	}
	sess, err := concurrency.NewSession(engine.Leaseless(ctx), n.client, name, &concurrency.SessionOptions{Owner: verb.Owner("console"), Prefix: n.call.Etcd.Prefix})
	if err != nil {
		return nil, err
	}
	err = n.add(name, sess)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sessions = append(n.sessions, sess)
	return n.consoles[name], err
}

// errNoNamespace: etcd has nothing of a namespace. A name that was made up takes none of the places.
var errNoNamespace = errors.New("etcd has no such namespace")

// exists returns errNoNamespace if etcd has nothing of a namespace, and etcd's error. One that the user may not read may exist.
func (n *namespaces) exists(ctx context.Context, name string) error {
	space, err := keyspace.New(n.call.Etcd.Prefix, name)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoNamespace, err)
	}
	resp, err := n.client.Get(ctx, space.Root(), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly())
	switch {
	case commit.Denied(err):
		return nil
	case err == nil && len(resp.Kvs) == 0:
		return fmt.Errorf("%w: %q below %s", errNoNamespace, name, n.call.Etcd.Prefix)
	}
	return err
}

// known returns the console of a namespace, or nil, and how many there are.
func (n *namespaces) known(name string) (http.Handler, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.consoles[name], len(n.consoles)
}

// close closes the sessions that were opened here.
func (n *namespaces) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all sync.WaitGroup
	for _, sess := range n.sessions {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), time.Second)
			defer cancel()
			_ = sess.Close(ctx) // at worst its lease expires
		})
	}
	all.Wait()
}
