// Command etcdkit-dev is an etcd to try things on: one member on this machine, without TLS and users, until ^C.
// It prints what to type in another terminal.
//
//	go install github.com/etcdkit/etcdkit/cmd/etcdkit-dev@latest
//	etcdkit-dev
//	etcdkit-dev -port 0 -data-dir ./etcd
//
// It is no verb of etcdkit, which works on the user's etcd alone and links no server.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdkit/etcdkit/embedtest"
)

// startTimeout bounds the start of etcd, which takes a fraction of a second.
const startTimeout = 30 * time.Second

func main() {
	port := flag.Int("port", 2379, "serve clients at this port of 127.0.0.1; 0: any that is free")
	dir := flag.String("data-dir", "", "keep the data in this folder (default: a temporary one, which is removed at the end)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "etcdkit-dev: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	if err := serve(ctx, os.Stdout, *port, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "etcdkit-dev:", err)
		os.Exit(1)
	}
}

// serve runs etcd until ctx ends.
func serve(ctx context.Context, out io.Writer, port int, dir string) error {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	opts := &embedtest.Options{Dir: dir, Fsync: dir != ""}
	if port != 0 {
		if err := free(addr); err != nil {
			return err
		}
		at := url.URL{Scheme: "http", Host: addr}
		opts.Configure = func(c *embed.Config) {
			c.ListenClientUrls = append(c.ListenClientUrls, at)
			c.AdvertiseClientUrls = []url.URL{at}
		}
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	etcd, err := embedtest.New(starting, opts)
	if err != nil {
		if ctx.Err() != nil {
			return nil // ^C while it starts
		}
		return err
	}
	if port == 0 {
		addr = strings.TrimPrefix(etcd.Endpoints()[0], "http://")
	}
	fmt.Fprint(out, greeting(addr, dir))
	<-ctx.Done()
	return etcd.Close()
}

// free returns an error if an address of this machine is in use: etcd would share its port with another etcd of
// ours.
func free(addr string) error {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w; -port 0 takes any that is free", err)
	}
	return lis.Close()
}

// greeting is what to do with etcd at an address.
func greeting(addr, dir string) string {
	data := "its data is removed then"
	if dir != "" {
		data = "its data stays in " + dir
	}
	return fmt.Sprintf(`etcd %s serves at %s until ^C; %s. In another terminal:

  export ETCDCTL_ENDPOINTS=%s
  etcdkit doctor
`, version.Version, addr, data, addr)
}
