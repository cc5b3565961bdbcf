// Command etcdkit-dev is an etcd to try things on: one member on this machine, until ^C. It prints what to type in
// another terminal. -tls and -user make it an etcd as people have it.
//
//	go install ./cmd/etcdkit-dev
//	etcdkit-dev
//	etcdkit-dev -port 0 -data-dir ./etcd
//	etcdkit-dev -tls ./certificates -user app:secret
//
// It is no verb of etcdkit, which works on the user's etcd alone and links no server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// startTimeout bounds the start of etcd, which takes a fraction of a second.
const startTimeout = 30 * time.Second

// options are what the flags say.
type options struct {
	port     int
	dir      string // for the data; empty for a temporary one
	tls      string // the folder for certificates; empty without TLS
	user     string
	password string
	endpoint string // once it is known
}

func main() {
	var o options
	var user string
	flag.IntVar(&o.port, "port", 2379, "serve clients at this port of 127.0.0.1; 0: any that is free")
	flag.StringVar(&o.dir, "data-dir", "", "keep the data in this folder (default: a temporary one, which is removed at the end)")
	flag.StringVar(&o.tls, "tls", "", "serve TLS, and refuse clients without a certificate: write ca.crt, client.crt, client.key and those of the server into this folder")
	flag.StringVar(&user, "user", "", "NAME:PASSWORD of a user that may read and write below /etcdkit/; root has the same password and may do everything")
	flag.Parse()
	err := o.check(user, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdkit-dev:", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	if err := serve(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "etcdkit-dev:", err)
		os.Exit(1)
	}
}

// check takes the user and the password apart, and refuses flags that contradict each other.
func (o *options) check(user string, args []string) error {
	var ok bool
	o.user, o.password, ok = strings.Cut(user, ":")
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q", args[0])
	case user != "" && (!ok || o.user == "" || o.password == ""):
		return errors.New("-user is NAME:PASSWORD")
	case user != "" && o.dir != "":
		return errors.New("-user works without -data-dir: users would stay in that folder, with the passwords of the first start")
	}
	return nil
}

// serve runs etcd until ctx ends.
func serve(ctx context.Context, out io.Writer, o options) error {
	opts := &embedtest.Options{Dir: o.dir, Fsync: o.dir != ""}
	if o.port != 0 || o.tls != "" {
		addr, err := free(net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
		if err != nil {
			return err
		}
		if opts.Configure, err = o.listen(addr); err != nil {
			return err
		}
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	etcd, err := embedtest.New(starting, opts)
	if err == nil && o.user != "" {
		err = o.addUser(starting, etcd)
	}
	if err != nil {
		if etcd != nil {
			_ = etcd.Close()
		}
		if ctx.Err() != nil {
			return nil // ^C while it starts
		}
		return err
	}
	if o.endpoint == "" {
		o.endpoint = strings.TrimPrefix(etcd.Endpoints()[0], "http://")
	}
	fmt.Fprint(out, o.greeting())
	<-ctx.Done()
	return etcd.Close()
}

// listen returns what makes etcd serve clients at an address, with TLS if there is a folder for certificates.
func (o *options) listen(addr string) (func(*embed.Config), error) {
	at := url.URL{Scheme: "http", Host: addr}
	o.endpoint = addr
	if o.tls != "" {
		dir, err := filepath.Abs(o.tls)
		if err != nil {
			return nil, err
		}
		if err := certify(dir); err != nil {
			return nil, err
		}
		at.Scheme, o.endpoint, o.tls = "https", "https://"+addr, dir
	}
	return func(c *embed.Config) {
		c.ListenClientUrls = append(c.ListenClientUrls, at)
		c.AdvertiseClientUrls = []url.URL{at}
		if files := &c.ClientTLSInfo; o.tls != "" {
			files.CertFile, files.KeyFile = filepath.Join(o.tls, "server.crt"), filepath.Join(o.tls, "server.key")
			files.TrustedCAFile, files.ClientCertAuth = filepath.Join(o.tls, "ca.crt"), true
		}
	}, nil
}

// addUser adds the user, and switches authentication on.
func (o *options) addUser(ctx context.Context, etcd *embedtest.Cluster) error {
	if o.user != "root" {
		if err := etcd.AddUser(ctx, o.user, o.password, keyspace.DefaultPrefix+"/"); err != nil {
			return err
		}
	}
	return etcd.EnableAuth(ctx, "root", o.password)
}

// free returns an address of this machine that is not in use, with a port that it chooses if that is 0: etcd would
// share its port with another etcd of ours.
func free(addr string) (string, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%w; -port 0 takes any that is free", err)
	}
	return lis.Addr().String(), lis.Close()
}

// greeting is what to do with etcd.
func (o *options) greeting() string {
	data := "its data is removed then"
	if o.dir != "" {
		data = "its data stays in " + o.dir
	}
	var b strings.Builder
	fmt.Fprintf(&b, "etcd %s serves at %s until ^C; %s. In another terminal:\n\n  export ETCDCTL_ENDPOINTS=%s\n", version.Version, o.endpoint, data, o.endpoint)
	if o.tls != "" {
		for _, file := range [][2]string{{"CACERT", "ca.crt"}, {"CERT", "client.crt"}, {"KEY", "client.key"}} {
			fmt.Fprintf(&b, "  export ETCDCTL_%s=%s\n", file[0], quoted(filepath.Join(o.tls, file[1])))
		}
	}
	if o.user != "" {
		fmt.Fprintf(&b, "  export ETCDCTL_USER=%s\n", quoted(o.user+":"+o.password))
	}
	b.WriteString("  etcdkit doctor\n")
	return b.String()
}

// plain are words that a shell reads as they are.
var plain = regexp.MustCompile(`^[\w./:@%+=-]+$`)

// quoted returns a word for a shell.
func quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
