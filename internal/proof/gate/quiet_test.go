package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A package is left out with another etcd only if its tests neither start an etcd nor name one.
func TestAsksNoEtcd(t *testing.T) {
	t.Parallel()
	const plain, names = "package a\n\nimport _ \"strings\"\n", "package a\n\nimport _ \"go.etcd.io/etcd/client/v3\"\n"
	const client = "fmt go.etcd.io/etcd/client/v3"
	for name, c := range map[string]struct {
		deps, code, test string
		want             bool
	}{
		"nothing of it":     {client, plain, plain, true},
		"a server":          {client + " " + server, plain, plain, false},
		"a fake one":        {client + " " + ours + "/embedtest/etcdfake", plain, plain, false},
		"the code names it": {client, names, plain, false},
		"a test names it":   {client, plain, names, false},
		"no Go":             {client, plain, "package", false},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(c.code), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(c.test), 0o600))
		require.Equal(t, c.want, asksNoEtcd(dir, c.deps), name)
	}
	require.False(t, asksNoEtcd(t.TempDir(), client), "there are no tests")
}

// In this tree these are left out with etcd 3.7, each of which is known to judge what it is given.
func TestAsksNoEtcdInThisTree(t *testing.T) {
	t.Chdir("../../..")
	all := thisTree(t)
	var quiet, through []string
	for _, p := range all {
		if p.quiet {
			quiet = append(quiet, p.path)
		}
		if p.through && !p.quiet && !under(p.path, "./console", "./exporter", "./cmd", "./examples", "./internal/examples", "./internal/proof") {
			through = append(through, p.path)
		}
	}
	require.Equal(t, []string{
		"./concurrency/limitgrpc", "./concurrency/limithttp", "./idempotency/aesgcm", "./idempotency/idemgrpc", "./idempotency/idemhttp",
		"./observe/otelkit", "./observe/promkit",
	}, through)
	require.Equal(t, []string{
		"./cmd/etcdkit", "./cmd/etcdkit/internal/cli/doctor", "./cmd/etcdkit/internal/cli/guarded", "./cmd/etcdkit/internal/cli/jobs", "./cmd/etcdkit/internal/cli/permits",
		"./cmd/etcdkit/internal/cli/queues", "./cmd/etcdkit/internal/cli/requests", "./cmd/etcdkit/internal/cli/verb", "./cmd/etcdkit/internal/crontab", "./concurrency/internal/middleware",
		"./idempotency/internal/middleware", "./idempotency/internal/rpc", "./internal/proof/check/replay", "./internal/proof/signals", "./internal/rate",
	}, quiet)
}

// A package is left out with another etcd if its code has no other way to it than public packages of ours.
func TestAsksThrough(t *testing.T) {
	t.Parallel()
	const plain, names = "package a\n\nimport _ \"strings\"\n", "package a\n\nimport _ \"go.etcd.io/etcd/client/v3\"\n"
	const uses = "package a\n\nimport _ \"" + ours + "/schedlock\"\n"
	for name, c := range map[string]struct {
		code, more, test string
		want             bool
	}{
		"through one of ours":     {uses, plain, names, true},
		"some code names it":      {uses, names, plain, false},
		"the code names it":       {names, uses, plain, false},
		"only a test goes there":  {plain, plain, uses, false},
		"no Go":                   {uses, "package", plain, false},
		"another package of ours": {"package a\n\nimport _ \"" + ours + "/embedtest\"\n", plain, plain, false},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"a.go": c.code, "b.go": c.more, "a_test.go": c.test} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		}
		require.Equal(t, c.want, asksThrough(dir), name)
	}
}
