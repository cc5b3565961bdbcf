package embedtest

import (
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	grpccreds "google.golang.org/grpc/credentials"

	"github.com/etcdkit/etcdkit/internal/ports"
)

// config returns etcd's configuration for the next start of the member.
func (m *member) config(r *running) *embed.Config {
	o := &m.s.opts
	cfg := embed.NewConfig()
	cfg.Name = m.name
	cfg.Dir = m.dir
	cfg.TickMs = uint(o.HeartbeatInterval.Milliseconds())
	cfg.ElectionMs = uint(o.ElectionTimeout.Milliseconds())
	cfg.UnsafeNoFsync = !o.Fsync
	cfg.QuotaBackendBytes = o.QuotaBytes
	cfg.BcryptCost = 4 // bcrypt's minimum; passwords here protect nothing
	if o.AuthTokenTTL > 0 {
		cfg.AuthTokenTTL = uint(o.AuthTokenTTL.Seconds())
	}
	cfg.EnableGRPCGateway = false
	// Only etcd's flags set this default. With zero, every request is formatted and
	// logged as slow.
	cfg.WarningUnaryRequestDuration = embed.DefaultWarningUnaryRequestDuration
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(m.logger(r))
	cfg.SocketOpts.ReusePort = ports.Held

	cfg.InitialCluster = m.initialCluster
	cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: m.peerAddr}}
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	if m.front != nil {
		cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: m.front.addr()}}
	}
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: m.clientAddr}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	if m.s.tls != nil {
		// The client port serves gRPC only, with credentials from memory: etcd's own
		// TLS settings need the key in a file.
		cfg.ListenClientHttpUrls = []url.URL{{Scheme: "http", Host: m.httpAddr}}
		cfg.AdvertiseClientUrls = []url.URL{{Scheme: "https", Host: m.clientAddr}}
		cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions,
			grpc.Creds(grpccreds.NewTLS(m.s.tls.server)))
	}
	if o.Configure != nil {
		o.Configure(cfg)
	}
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.ChainUnaryInterceptor(r.status))
	next := cfg.ServiceRegister
	cfg.ServiceRegister = func(s *grpc.Server) {
		r.add(s)
		if next != nil {
			next(s)
		}
	}
	return cfg
}
