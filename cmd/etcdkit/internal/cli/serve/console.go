// Package serve has the verbs that serve over HTTP until they are ended: console and export.
package serve

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/exit"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/console"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/webguard"
)

// Console returns the verb console.
func Console(c *verb.Call) *cobra.Command {
	var listen, cluster string
	var hosts []string
	var write bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve a page in the browser that shows the namespace, and with --write changes it",
		Long: `Serve package console until the command is interrupted, and print its address: queues with the reason why
each request waits, elections, jobs, requests, processes, what operators have changed, and what is wrong. The other
namespaces below the prefix have links.

The address has a token, without which nothing is shown. The browser keeps it as a cookie, for a path that
this console alone has: programs at other ports of this machine do not get it. A link elsewhere may lead to
a page; a form elsewhere changes nothing. The console is read-only without --write; with it each action is a
line on standard error. Looking leaves nothing in etcd, also of a namespace that does not exist. It listens on the loopback interface: to reach it from elsewhere, use an SSH tunnel,
or put package console into a program behind your own authentication. Other addresses need --host, the names
by which browsers reach it; the connection is not encrypted.`,
		Example: "etcdkit console -N payments\netcdkit console -N payments --listen 127.0.0.1:8080 --write",
		Args:    verb.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListen(listen, hosts); err != nil {
				return err
			}
			c.SurviveReader()
			ctx := engine.Leaseless(cmd.Context())
			return exit.Served(ctx, c.Connected(ctx, &concurrency.SessionOptions{Owner: verb.Owner("console")},
				func(ctx context.Context, client *clientv3.Client, sess *concurrency.Session) error {
					if write {
						if err := mayWrite(ctx, c, sess); err != nil {
							return err
						}
					}
					return serveConsole(ctx, c, client, sess, console.Options{Hosts: hosts, Cluster: cluster}, listen, write)
				}))
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on; port 0 takes any")
	f.StringSliceVar(&hosts, "host", nil, "further host names by which browsers reach it")
	f.StringVar(&cluster, "cluster", "", "the label etcdkit_cluster of this etcd: links of alerts of another one are refused")
	f.BoolVar(&write, "write", false, "allow actions: limits, evictions, jobs, outcomes")
	return cmd
}

// mayWrite returns an error if etcd denies the user to record an action, and so to make one. It changes nothing.
func mayWrite(ctx context.Context, c *verb.Call, sess *concurrency.Session) error {
	ctx, cancel := context.WithTimeout(ctx, c.Etcd.Timeout)
	defer cancel()
	in := engine.Of(sess)
	changes := in.Space().Changes()
	never := clientv3.Compare(clientv3.Version(changes), "<", 0)
	_, err := in.KV().Txn(ctx).If(never).Then(clientv3.OpDelete(changes, clientv3.WithPrefix())).Commit()
	if err != nil {
		return fmt.Errorf("serve the console with --write: %w", in.Explain(err))
	}
	return nil
}

// checkListen refuses an address that others can reach, unless its names are given.
func checkListen(listen string, hosts []string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return exit.Usagef("--listen %q: it is HOST:PORT", listen)
	}
	ip := net.ParseIP(host)
	if loopback := host == "localhost" || ip != nil && ip.IsLoopback(); !loopback && len(hosts) == 0 {
		return exit.Usagef("--listen %s can be reached from other machines, without encryption: add --host with the names by which "+
			"browsers reach it, or listen on 127.0.0.1 and use a tunnel", listen)
	}
	return nil
}

func serveConsole(
	ctx context.Context, c *verb.Call, client *clientv3.Client, sess *concurrency.Session, opts console.Options, listen string, write bool,
) error {
	hosts := opts.Hosts
	opts.Hosts = append([]string{"localhost", "127.0.0.1", "[::1]"}, hosts...)
	opts.Actor = func(*http.Request) string { return sess.Owner() }
	opts.Logger = output.Logger(c.Std.Err, zap.InfoLevel)
	if write {
		opts.Authorize = func(*http.Request, console.Action) error { return nil }
	}
	all := &namespaces{ctx: ctx, call: c, client: client, opts: opts, own: c.Etcd.Namespace}
	defer all.close()
	if err := all.add(c.Etcd.Namespace, sess); err != nil {
		return exit.AsUsage(err)
	}
	reached, err := webguard.NewHosts(opts.Hosts)
	if err != nil {
		return exit.AsUsage(err)
	}
	lis, err := net.Listen("tcp", listen)
	if err != nil {
		return exit.Usagef("--listen %s: %w", listen, err)
	}
	token := rand.Text()
	url := fmt.Sprintf("http://%s/?token=%s", ReachedAt(lis.Addr().String(), hosts), token)
	server := &http.Server{
		Handler:           withToken(token, "/"+strings.ToLower(rand.Text()[:10]), reached, all),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err = c.Print(struct {
		output.Form
		URL   string `json:"url"`
		Write bool   `json:"write"`
	}{output.FormOf("console"), url, write}, func(t *output.Table) { t.Line(url) })
	if err != nil {
		_ = lis.Close()
		return err
	}
	if err := server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil // it was interrupted, which is how it ends
}

// ReachedAt returns a host and port by which browsers reach a console that listens at an address: the console refuses
// all but hosts and the loopback interface.
func ReachedAt(listens string, hosts []string) string {
	host, port, _ := net.SplitHostPort(listens)
	if ip := net.ParseIP(host); len(hosts) > 0 && !ip.IsLoopback() {
		host = hosts[0]
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// withToken lets requests pass that have the token: in the first address, and then in a cookie. It serves h below a
// path. Browsers send the cookies of a host to all of its ports, but only those of the path. Its own answers have the
// headers of the console's, and the token counts at the console's hosts alone.
func withToken(token, below string, hosts webguard.Hosts, h http.Handler) http.Handler {
	h = http.StripPrefix(below, h)
	same := func(s string) bool { return subtle.ConstantTimeCompare([]byte(s), []byte(token)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A console at another port must not replace it, so the name has the port.
		_, port, _ := net.SplitHostPort(r.Host)
		name := "etcdkit-" + strings.Map(digit, port)
		enters := same(r.URL.Query().Get("token")) // pages have tokens of requests in their addresses
		if c, err := r.Cookie(name); err == nil && same(c.Value) && !enters {
			h.ServeHTTP(w, r)
			return
		}
		webguard.SetHeaders(w.Header().Set, r.Header.Get("Sec-Fetch-Dest"))
		if err := hosts.Refuse(r.Host); err != nil {
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
			return
		}
		if enters {
			// with Strict, a link in a chat would lead to a page without the cookie
			http.SetCookie(w, &http.Cookie{Name: name, Value: token, Path: below + "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
			http.Redirect(w, r, below+"/", http.StatusSeeOther)
			return
		}
		http.Error(w, "The token is missing: open the address that 'etcdkit console' has printed.", http.StatusForbidden)
	})
}

// digit keeps digits.
func digit(r rune) rune {
	if r < '0' || r > '9' {
		return -1
	}
	return r
}
