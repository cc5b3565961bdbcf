package idemtest_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/conformance"
	"github.com/etcdkit/etcdkit/idempotency/idemtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// The store keeps its promises: on an etcd of its own, or with EMBEDTEST_ENDPOINTS on that
// cluster.
func TestConformance(t *testing.T) {
	idemtest.Run(t, clientv3.Config{Endpoints: embedtest.Shared(t).Endpoints()}, nil)
}

// Large results may be kept as well as omitted.
func TestLargeResultIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("10 MiB through etcd: seconds, and under the race detector many")
	}
	t.Parallel()
	// A busy disk may take seconds for 10 MiB: no lease may end meanwhile.
	store := idemtest.Store(idemtest.Options{
		Store:   &idempotency.Options{MaxResult: 16 << 20},
		Session: &concurrency.SessionOptions{TTL: 300 * time.Second},
	})
	check(t, clientv3.Config{Endpoints: embedtest.Shared(t).Endpoints()}, store, &conformance.Options{Patience: 2 * time.Minute}, "LargeResult")
}

// check tests some promises.
func check(t *testing.T, cluster clientv3.Config, store conformance.Store, opts *conformance.Options, names ...string) {
	t.Helper()
	for _, p := range conformance.Promises() {
		if slices.Contains(names, p.Name) {
			require.NoError(t, p.Check(t.Context(), cluster, store, opts), p.Name)
		}
	}
}

// The promises are kept over TLS, with a role for one prefix, a codec and a secret, and nothing is
// left there.
func TestConformanceConfined(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, &embedtest.Options{TLS: true, Configure: func(cfg *embed.Config) { cfg.BcryptCost = 4 }})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, c.AddUser(ctx, "tester", "secret", "/tests/"))
	require.NoError(t, c.EnableAuth(ctx, "admin", "secret"))
	var trust *tls.Config
	c.NewClient(t, &embedtest.ClientOptions{Configure: func(cfg *clientv3.Config) { trust = cfg.TLS }})
	cluster := clientv3.Config{Endpoints: c.Endpoints(), TLS: trust, Username: "tester", Password: "secret", DialTimeout: 10 * time.Second}
	store := idemtest.Store(idemtest.Options{
		Store:   &idempotency.Options{Codec: newSealed(t), Secret: []byte("secret")},
		Session: &concurrency.SessionOptions{TTL: 10 * time.Second},
	})
	opts := &conformance.Options{Prefix: "/tests/conformance/"}
	check(t, cluster, store, opts, "Mismatch", "OwnKeys", "Steps", "CrashTakeOver")
	resp, err := c.Client().Get(ctx, "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs)
	leases, err := c.Client().Leases(ctx)
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}

// sealed is a codec that encrypts, and binds the ciphertext to its request.
type sealed struct{ cipher.AEAD }

func newSealed(t *testing.T) sealed {
	t.Helper()
	block, err := aes.NewCipher([]byte("sixteen secret b"))
	require.NoError(t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(t, err)
	return sealed{aead}
}

func (sealed) Name() string { return "sealed 1" }
func (s sealed) Encode(plain, about []byte) ([]byte, error) {
	return s.Seal(nil, nil, plain, about), nil
}
func (s sealed) Decode(stored, about []byte) ([]byte, error) { return s.Open(nil, nil, stored, about) }

// spoiled is the store with a fault between it and its callers.
type spoiled struct {
	conformance.Store
	request func(conformance.Request) conformance.Request
}

func (s spoiled) Open(ctx context.Context, client *clientv3.Client, prefix string) (conformance.Instance, error) {
	in, err := s.Store.Open(ctx, client, prefix)
	return spoiledInstance{in, s.request}, err
}

type spoiledInstance struct {
	conformance.Instance
	request func(conformance.Request) conformance.Request
}

func (in spoiledInstance) Do(ctx context.Context, r conformance.Request) (conformance.Answer, error) {
	return in.Instance.Do(ctx, in.request(r))
}

// A wrapper around the store that breaks a promise is detected.
func TestSpoiledStore(t *testing.T) {
	t.Parallel()
	cluster := clientv3.Config{Endpoints: embedtest.Shared(t).Endpoints()}
	for name, tt := range map[string]struct {
		promise string
		request func(r conformance.Request) conformance.Request
	}{
		"payload left out":   {"Mismatch", func(r conformance.Request) conformance.Request { r.Payload = ""; return r }},
		"one tenant for all": {"Scopes", func(r conformance.Request) conformance.Request { r.Scope = "all"; return r }},
		"policy left out":    {"CrashRefuse", func(r conformance.Request) conformance.Request { r.Refuse = false; return r }},
		"never waits":        {"Wait", func(r conformance.Request) conformance.Request { r.Wait = new(time.Duration); return r }},
		"failures forgotten": {"ErrorRemembered", func(r conformance.Request) conformance.Request { r.Remember = false; return r }},
		"errors swallowed": {"ErrorReleasesTheKey", func(r conformance.Request) conformance.Request {
			fn := r.Func
			r.Func = func(ctx context.Context, a conformance.Attempt) (string, error) {
				v, _ := fn(ctx, a)
				return v, nil
			}
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, p := range conformance.Promises() {
				if p.Name == tt.promise {
					err := p.Check(t.Context(), cluster, spoiled{idemtest.Store(idemtest.Options{}), tt.request}, nil)
					require.Error(t, err)
					require.NotContains(t, err.Error(), "within", "by waiting alone")
				}
			}
		})
	}
}

// A test with the suite builds no etcd server.
func TestNoServer(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".", "../conformance").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "go.etcd.io/etcd/client/v3\n")
	for pkg := range strings.Lines(string(out)) {
		for _, server := range []string{"go.etcd.io/etcd/server", "go.etcd.io/raft", "go.etcd.io/bbolt", "github.com/stretchr"} {
			require.False(t, strings.HasPrefix(pkg, server), pkg)
		}
	}
}
