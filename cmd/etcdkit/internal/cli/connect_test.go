package cli

import (
	"bytes"
	"context"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// The connection can be configured as etcdctl's, and a flag counts more than its variable.
func TestEnvironment(t *testing.T) {
	f := newFixture(t)
	f.crowd("charge")
	t.Setenv("ETCDCTL_ENDPOINTS", strings.Join(f.etcd.Endpoints(), ","))
	t.Setenv("ETCDKIT_PREFIX", f.prefix)
	t.Setenv("ETCDKIT_NAMESPACE", "test")
	t.Setenv("ETCDKIT_OUTPUT", "json")
	ls := func(args ...string) result {
		var out, errs bytes.Buffer
		code := execute(testkit.Context(t), append([]string{"ls"}, args...), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return result{code, out.String(), errs.String()}
	}
	r := ls()
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, `"name":"charge"`)
	r = ls("-o", "table", "-N", "other")
	require.Zero(t, r.code, r.err)
	require.Equal(t, "KIND/NAME  REQUESTS\n", r.out)
	t.Setenv("ETCDCTL_COMMAND_TIMEOUT", "soon")
	r = ls()
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, `ETCDCTL_COMMAND_TIMEOUT="soon"`)
}

// Each variable is one of etcdctl's or starts with ETCDKIT_.
func TestEveryGlobalFlagHasAVariable(t *testing.T) {
	t.Parallel()
	a := &app{}
	root := a.root()
	for name := range theirs {
		require.NotNil(t, root.PersistentFlags().Lookup(name), name)
		require.True(t, strings.HasPrefix(variable(name), "ETCDCTL_"), name)
	}
	for name := range ours {
		require.NotNil(t, root.PersistentFlags().Lookup(name), name)
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for _, verb := range []string{"ls", "show x", "limit x 3", "evict x 1 --yes", "elections"} {
		var out, errs bytes.Buffer
		args := append(strings.Fields(verb), "--endpoints", l.Addr().String(), "-N", "test", "--command-timeout", "300ms")
		code := execute(testkit.Context(t), args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		require.Equal(t, exitUnreachable, code, verb)
		require.Contains(t, errs.String(), l.Addr().String(), verb)
		require.Contains(t, errs.String(), "etcdkit doctor", verb)
		require.Empty(t, out.String(), verb)
	}
}

func TestDenied(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	require.NoError(t, etcd.EnableAuth(ctx, "root", "secret"))
	require.NoError(t, etcd.AddUser(ctx, "guest", "guest", "/elsewhere/"))
	run := func(args ...string) result {
		var out, errs bytes.Buffer
		code := execute(ctx, append(args, "--endpoints", strings.Join(etcd.Endpoints(), ","), "-N", "test"), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return result{code, out.String(), errs.String()}
	}
	for name, args := range map[string][]string{
		"no user":        {"ls"},
		"wrong password": {"ls", "--user", "guest:wrong"},
		"no permission":  {"ls", "--user", "guest:guest"},
	} {
		r := run(args...)
		require.Equal(t, exitDenied, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, "--user", name)
		require.NotContains(t, r.err, "wrong", name)
	}
	r := run("ls", "--user", "root", "--password", "secret")
	require.Zero(t, r.code, r.err)
	r = run("ls", "--user", "root")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "ETCDCTL_PASSWORD")
	require.Equal(t, exitUsage, run("ls", "--password", "x").code)
}

// A verb that is interrupted exits with the signal's code.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	out := &signalled{at: "semaphore/charge", do: func() { cancel(interrupted{syscall.SIGINT}) }}
	var errs bytes.Buffer
	args := []string{"show", "-w", "-N", "test", "charge", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix}
	require.Equal(t, 130, execute(ctx, args, Streams{In: strings.NewReader(""), Out: out, Err: &errs}))
}

// signalled calls do once a text was written.
type signalled struct {
	bytes.Buffer
	at string
	do func()
}

func (s *signalled) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.at) {
		s.do()
	}
	return n, err
}
