package main

import (
	"bufio"
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/etcdflags"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

func TestMain(m *testing.M) { progtest.Main(m, main) }

// dev is etcdkit-dev as its user runs it, with a client of its etcd.
type dev struct {
	*progtest.Program
	*clientv3.Client
	says string // up to what is to be typed last
}

func start(t *testing.T, args ...string) dev {
	t.Helper()
	p := progtest.New(t, args...)
	p.Stdout = nil
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	d := dev{Program: p}
	for lines := bufio.NewScanner(out); ; {
		require.True(t, lines.Scan(), "it ended: %s", &p.Err)
		d.says += lines.Text() + "\n"
		if lines.Text() == "  etcdkit doctor" {
			d.Client, err = clientv3.New(d.config(t))
			require.NoError(t, err)
			return d
		}
	}
}

// config is what the printed variables say.
func (d dev) config(t *testing.T) clientv3.Config {
	t.Helper()
	said := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  export ETCDCTL_(\w+)=(.*)$`).FindAllStringSubmatch(d.says, -1) {
		said[m[1]] = strings.Trim(m[2], "'")
	}
	c, err := (&etcdflags.Connection{
		Endpoints: []string{said["ENDPOINTS"]}, Cacert: said["CACERT"], Cert: said["CERT"], Key: said["KEY"], InsecureTransport: true, User: said["USER"],
	}).Config(nil)
	require.NoError(t, err)
	return *c
}

// end interrupts it, as ^C does.
func (d dev) end(t *testing.T) {
	t.Helper()
	require.NoError(t, d.Close())
	require.NoError(t, d.Process.Signal(os.Interrupt))
	require.NoError(t, d.Wait(), "%s", &d.Err)
}

// refused starts one at a port that is in use. It must end by itself, and say so.
func refused(t *testing.T, port, says string) {
	t.Helper()
	p := progtest.New(t, "-port", port)
	require.NoError(t, p.Start())
	late := time.AfterFunc(30*time.Second, func() { _ = p.Process.Kill() })
	defer late.Stop()
	_ = p.Wait()
	require.Equal(t, 1, p.ProcessState.ExitCode(), "it shares the port: %s", &p.Out)
	require.Contains(t, p.Err.String(), says)
}

// An etcd serves at the printed endpoint until ^C, and leaves no file.
func TestTemporary(t *testing.T) {
	skipped(t)
	t.Parallel()
	d := start(t, "-port", "0")
	require.Contains(t, d.says, " until ^C; its data is removed then.")
	_, err := d.Put(testkit.Context(t), "greeting", "hello")
	require.NoError(t, err)
	d.end(t)
}

// With a folder, the next one has the data of the last. It serves at the given port, which a second one does not share.
func TestDataDir(t *testing.T) {
	skipped(t)
	t.Parallel()
	ctx, dir := testkit.Context(t), filepath.Join(t.TempDir(), "etcd")
	first := start(t, "-port", "0", "-data-dir", dir)
	require.Contains(t, first.says, "its data stays in "+dir)
	_, err := first.Put(ctx, "greeting", "hello")
	require.NoError(t, err)
	first.end(t)

	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(lis.Addr().(*net.TCPAddr).Port)
	refused(t, port, "-port 0 takes any that is free")
	require.NoError(t, lis.Close())
	second := start(t, "-port", port, "-data-dir", dir)
	require.Equal(t, []string{"127.0.0.1:" + port}, second.Endpoints())
	got, err := second.Get(ctx, "greeting")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	refused(t, port, "address already in use")
	second.end(t)
}

// With -tls and -user it takes clients that have its certificate and are a user: one for the keys of etcdkit alone.
func TestSecured(t *testing.T) {
	skipped(t)
	t.Parallel()
	ctx := testkit.Context(t)
	d := start(t, "-port", "0", "-tls", filepath.Join(t.TempDir(), "some certificates"), "-user", "app:secret")
	_, err := d.Put(ctx, "/etcdkit/v1/a", "b")
	require.NoError(t, err)
	_, err = d.Put(ctx, "/other", "b")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	root := d.config(t)
	root.Username = "root"
	admin, err := clientv3.New(root)
	require.NoError(t, err)
	_, err = admin.UserList(ctx)
	require.NoError(t, err)
	require.NoError(t, admin.Close())

	without := d.config(t)
	without.TLS.GetClientCertificate = nil
	without.DialTimeout = 2 * time.Second
	_, err = clientv3.New(without) // it logs in
	require.ErrorIs(t, err, context.DeadlineExceeded)
	wrong := d.config(t)
	wrong.Password = "wrong"
	_, err = clientv3.New(wrong)
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	d.end(t)
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "/tmp/a-1/ca.crt", quoted("/tmp/a-1/ca.crt"))
	require.Equal(t, `'a b'`, quoted("a b"))
	require.Equal(t, `'it'\''s'`, quoted("it's"))
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"app", "app:", ":secret"} {
		progtest.New(t, "-user", user).Ends(2, "NAME:PASSWORD")
	}
	progtest.New(t, "-user", "app:secret", "-data-dir", t.TempDir()).Ends(2, "without -data-dir")
	progtest.New(t, "-port", "0", "-tls", "/dev/null/x").Ends(1, "/dev/null")
	progtest.New(t, "start").Ends(2, `unexpected argument "start"`)
	progtest.New(t, "-port", "99999").Ends(1, "99999")
}

func skipped(t *testing.T) {
	if os.Getenv("EMBEDTEST_ENDPOINTS") != "" {
		t.Skip("it starts an etcd of its own")
	}
	if runtime.GOOS == "windows" {
		t.Skip("this system cannot interrupt a process")
	}
}
