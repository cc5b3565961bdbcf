// Package server is an etcd server for test binaries that run themselves as one:
// their tests then need no other binary. It understands as much of etcd's flags
// as a procs.Cluster passes.
package server

import (
	"flag"
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
)

// Main is the body of the server's process. It returns the exit status.
func Main(args []string) int {
	cfg := embed.NewConfig()
	f := flag.NewFlagSet("etcd", flag.ContinueOnError)
	urls := func(name string, to *[]url.URL) {
		f.Func(name, "", func(s string) error {
			u, err := url.Parse(s)
			if err == nil {
				*to = []url.URL{*u}
			}
			return err
		})
	}
	f.StringVar(&cfg.Name, "name", "", "")
	f.StringVar(&cfg.Dir, "data-dir", "", "")
	urls("listen-client-urls", &cfg.ListenClientUrls)
	urls("advertise-client-urls", &cfg.AdvertiseClientUrls)
	urls("listen-peer-urls", &cfg.ListenPeerUrls)
	urls("initial-advertise-peer-urls", &cfg.AdvertisePeerUrls)
	f.StringVar(&cfg.InitialCluster, "initial-cluster", "", "")
	f.StringVar(&cfg.LogLevel, "log-level", "", "")
	f.StringVar(&cfg.Logger, "logger", "", "")
	f.BoolVar(&cfg.UnsafeNoFsync, "unsafe-no-fsync", false, "")
	f.BoolVar(&cfg.SocketOpts.ReusePort, "socket-reuse-port", false, "")
	f.StringVar(&cfg.AutoCompactionMode, "auto-compaction-mode", cfg.AutoCompactionMode, "")
	f.StringVar(&cfg.AutoCompactionRetention, "auto-compaction-retention", cfg.AutoCompactionRetention, "")
	f.Uint64Var(&cfg.SnapshotCount, "snapshot-count", cfg.SnapshotCount, "")
	f.Uint64Var(&cfg.SnapshotCatchUpEntries, "snapshot-catchup-entries", cfg.SnapshotCatchUpEntries, "")
	f.BoolVar(&cfg.EnablePprof, "enable-pprof", cfg.EnablePprof, "")
	f.Int64Var(&cfg.QuotaBackendBytes, "quota-backend-bytes", cfg.QuotaBackendBytes, "")
	f.StringVar(&cfg.AuthToken, "auth-token", cfg.AuthToken, "")
	f.UintVar(&cfg.AuthTokenTTL, "auth-token-ttl", cfg.AuthTokenTTL, "")
	f.UintVar(&cfg.BcryptCost, "bcrypt-cost", cfg.BcryptCost, "")
	f.UintVar(&cfg.TickMs, "heartbeat-interval", cfg.TickMs, "")
	f.UintVar(&cfg.ElectionMs, "election-timeout", cfg.ElectionMs, "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, <-e.Err())
	return 1
}
