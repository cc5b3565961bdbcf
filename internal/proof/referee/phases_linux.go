package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// phase is one kind of failure.
type phase struct {
	name string
	// strike has it happen to the first commands of several names, which have started, and returns what
	// mends it, or nil.
	strike func(ctx context.Context, c *procs.Cluster, first []*contender) (mend func(context.Context) error, err error)
	lasts  time.Duration // of the commands; 0: longer than the round
	guard  bool          // it needs a guard
	// excepted says that the documentation names an overlap here as possible.
	excepted bool
}

var phases = []phase{
	{name: "nothing; the command leaves a daemon", strike: none, lasts: 200 * time.Millisecond},
	{name: "renewing process SIGKILLed", strike: signalled(renewing, syscall.SIGKILL)},
	{name: "renewing process SIGSTOPped", strike: signalled(renewing, syscall.SIGSTOP)},
	{name: "guard SIGKILLed", strike: signalled(guarding, syscall.SIGKILL), guard: true},
	{name: "guard SIGSTOPped, and connection cut", strike: guardStopped, guard: true},
	{name: "connection to etcd cut", strike: cut},
	{name: "etcd's leader SIGKILLed, and restarted", strike: leaderKilled, lasts: 4 * time.Second},
	{name: "etcd's leader SIGSTOPped for 4 s", strike: leaderStopped, lasts: 8 * time.Second, excepted: true},
	{name: "all of etcd SIGSTOPped for 12 s", strike: allStopped},
	{name: "lease revoked by hand", strike: leaseRevoked, excepted: true},
}

func none(context.Context, *procs.Cluster, []*contender) (func(context.Context) error, error) {
	return nil, nil
}

// signalled sends a signal to one process of each first wrapper.
func signalled(which func(*contender) (int, error), s syscall.Signal) func(context.Context, *procs.Cluster, []*contender) (func(context.Context) error, error) {
	return func(_ context.Context, _ *procs.Cluster, first []*contender) (func(context.Context) error, error) {
		for _, c := range first {
			pid, err := which(c)
			if err == nil {
				err = syscall.Kill(pid, s)
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// renewing is the process that the user has started.
func renewing(c *contender) (int, error) { return c.cmd.Process.Pid, nil }

// guarding is its child.
func guarding(c *contender) (int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(c.cmd.Process.Pid) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("process %d has no child", c.cmd.Process.Pid)
}

// guardStopped stops the guard, and then has the trust of its front process end.
func guardStopped(ctx context.Context, c *procs.Cluster, first []*contender) (func(context.Context) error, error) {
	if _, err := signalled(guarding, syscall.SIGSTOP)(ctx, c, first); err != nil {
		return nil, err
	}
	return cut(ctx, c, first)
}

// cut silences the connections of the first wrappers.
func cut(_ context.Context, _ *procs.Cluster, first []*contender) (func(context.Context) error, error) {
	for _, c := range first {
		close(c.cut)
	}
	return nil, nil
}

func leaderKilled(ctx context.Context, c *procs.Cluster, _ []*contender) (func(context.Context) error, error) {
	leader, err := c.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	c.Crash(leader)
	return func(ctx context.Context) error { return c.Restart(ctx, leader) }, nil
}

func leaderStopped(ctx context.Context, c *procs.Cluster, _ []*contender) (func(context.Context) error, error) {
	leader, err := c.WaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	return pause(ctx, 4*time.Second, c.Member(leader))
}

func allStopped(ctx context.Context, c *procs.Cluster, _ []*contender) (func(context.Context) error, error) {
	return pause(ctx, 12*time.Second, c.Member(0), c.Member(1), c.Member(2))
}

// leaseRevoked revokes the leases of the first requests.
func leaseRevoked(ctx context.Context, c *procs.Cluster, first []*contender) (func(context.Context) error, error) {
	for _, f := range first {
		resp, err := c.Client().Get(ctx, f.queue, clientv3.WithFirstCreate()...)
		if err == nil && len(resp.Kvs) == 0 {
			err = fmt.Errorf("etcd has no request below %s", f.queue)
		}
		if err == nil {
			_, err = c.Client().Revoke(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// pause stops processes for a while.
func pause(ctx context.Context, lasts time.Duration, all ...*procs.Process) (func(context.Context) error, error) {
	for _, p := range all {
		if err := p.Pause(); err != nil {
			return nil, err
		}
	}
	select {
	case <-time.After(lasts):
	case <-ctx.Done():
	}
	for _, p := range all {
		if err := p.Resume(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
