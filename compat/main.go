// Compat runs the test suite against real etcd servers: one line of etcd after
// the other, each server a process of its own, built from etcd's module by the
// little module beside this file.
//
//	go run ./compat
//	go run ./compat -lines etcd35 -members 1 ./concurrency -run TestMutex
//
// The arguments after the flags are passed to `go test`; the default is ./...
// Packages run one after the other, and tests that must break a member are
// skipped, since the servers are not theirs. The exit status is 0 only if the
// tests pass on every line and leave no key behind.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

func main() {
	only := flag.String("lines", "", "the lines of etcd, separated by commas (default: all folders of compat with a go.mod)")
	members := flag.Int("members", 3, "how many members the cluster has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := lines(os.DirFS("compat"))
	if *only != "" {
		all = strings.Split(*only, ",")
	}
	if err != nil || len(all) == 0 {
		fmt.Fprintln(os.Stderr, "compat: no line of etcd here; run it in the root of the repository:", err)
		os.Exit(2)
	}
	tests := flag.Args()
	if len(tests) == 0 {
		tests = []string{"./..."}
	}

	var report []string
	failed := false
	for _, line := range all {
		begun := time.Now()
		version, err := run(ctx, line, *members, tests)
		verdict := "passed"
		if err != nil {
			verdict, failed = "FAILED: "+err.Error(), true
		}
		report = append(report, fmt.Sprintf("%s  etcd %s, %d members: %s in %.0f s", line, cmp.Or(version, "?"), *members, verdict, time.Since(begun).Seconds()))
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Println(strings.Join(report, "\n"))
	if failed {
		os.Exit(1)
	}
}

// lines lists the folders that are modules.
func lines(dir fs.FS) ([]string, error) {
	mods, err := fs.Glob(dir, "*/go.mod")
	for i, mod := range mods {
		mods[i] = filepath.Dir(mod)
	}
	slices.Sort(mods)
	return mods, err
}

// run runs the tests against one line of etcd, and returns the version that its
// servers report.
func run(ctx context.Context, line string, members int, tests []string) (version string, err error) {
	binary, err := filepath.Abs(filepath.Join("bin", line))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("compat", line), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	dir, err := os.MkdirTemp("", line+"-")
	if err != nil {
		return "", err
	}
	start, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := procs.Start(start, procs.Options{Binary: binary, Dir: dir, Members: members})
	if err != nil {
		return "", err
	}
	defer func() {
		c.Close()
		if err == nil {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Println("the servers' logs are in", dir)
		}
	}()
	if version, err = c.Version(start); err != nil {
		return "", err
	}
	fmt.Printf("== etcd %s, %d members\n", version, members)

	// The tests share the servers: packages side by side would count each
	// other's requests.
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-p=1"}, tests...)...)
	cmd.Env = append(os.Environ(), "EMBEDTEST_ENDPOINTS="+strings.Join(c.Endpoints(), ","),
		"ETCD_BINARY="+binary) // for tests that kill and stop servers of their own
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		return version, errors.Join(err, gone(c, members))
	}
	return version, errors.Join(gone(c, members), left(ctx, c.Client()))
}

// left returns an error if tests have left keys behind: they would disturb the users of a real
// cluster, and the next run.
func left(ctx context.Context, kv clientv3.KV) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := kv.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(10))
	if err != nil || resp.Count == 0 {
		return err
	}
	keys := make([]string, len(resp.Kvs))
	for i, pair := range resp.Kvs {
		keys[i] = string(pair.Key)
	}
	return fmt.Errorf("%d keys are left behind: %q", resp.Count, keys)
}

// gone returns an error if servers have ended by themselves.
func gone(c *procs.Cluster, members int) error {
	for i := range members {
		if p := c.Member(i); p.Ended() {
			return fmt.Errorf("member %d ended by itself: %v\n%s", i, p.Err(), p.Tail(2000)) //nolint:errorlint // nil after an exit of 0
		}
	}
	return nil
}
