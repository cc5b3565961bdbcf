package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/etcdkit/etcdkit/internal/ports"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// Policy is when Redis writes a command to disk: before it confirms it (always), or once a second.
type Policy string

// The policies, by Redis's names for them.
const (
	Always   Policy = "always"
	Everysec Policy = "everysec"
)

// Redis is one Redis server for each policy that there is.
type Redis struct {
	Version string
	addr    map[Policy]string
	missing string
	end     []func()
}

// StartRedis starts two servers, if redis-server is in PATH, with their data below dir. If REDIS_ADDR
// is set, that server is used instead, as it is configured.
func StartRedis(ctx context.Context, dir string) (*Redis, error) {
	r := &Redis{addr: map[Policy]string{}, Version: "none"}
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		return r, r.given(ctx, addr)
	}
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		r.missing = "no redis-server in PATH, and REDIS_ADDR is not set"
		return r, nil
	}
	for _, p := range []Policy{Always, Everysec} {
		if err := r.start(ctx, binary, dir, p); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// given uses a server that is there; its own policy decides which rows it has.
func (r *Redis) given(ctx context.Context, addr string) error {
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	r.Version = version(ctx, c)
	policy := "unknown"
	if all, err := c.ConfigGet(ctx, "append*").Result(); err != nil {
		return fmt.Errorf("REDIS_ADDR=%s: read its appendfsync: %w", addr, err)
	} else if policy = all["appendfsync"]; all["appendonly"] != "yes" {
		policy = "off"
	}
	r.addr[Policy(policy)] = addr
	r.missing = fmt.Sprintf("the Redis of REDIS_ADDR has appendfsync %s", policy)
	return nil
}

func (r *Redis) start(ctx context.Context, binary, dir string, p Policy) error {
	dir, err := os.MkdirTemp(dir, "redis-")
	if err != nil {
		return err
	}
	r.end = append(r.end, func() { _ = os.RemoveAll(dir) })
	for {
		addr, release, err := ports.Reserve()
		if err != nil {
			return err
		}
		release() // Redis cannot share the port with a reservation
		host, port, _ := net.SplitHostPort(addr)
		proc, err := procs.Run(procs.Command{Name: "redis-server", Path: binary, Log: filepath.Join(dir, "log"), Args: []string{
			"--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", string(p), "--maxclients", "4000",
		}})
		if err != nil {
			return err
		}
		c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		for err = c.Ping(ctx).Err(); err != nil && !proc.Ended() && ctx.Err() == nil; err = c.Ping(ctx).Err() {
			time.Sleep(10 * time.Millisecond)
		}
		if err == nil {
			r.Version, r.addr[p] = version(ctx, c), addr
			r.end = append(r.end, proc.Kill)
			return c.Close()
		}
		_ = c.Close()
		text := proc.Tail(2000)
		proc.Kill()
		if !strings.Contains(text, "Address already in use") {
			return fmt.Errorf("start redis-server: %w\n%s", errors.Join(err, ctx.Err()), text)
		}
	}
}

// Missing returns why there is no server for some policy, and "" if there is one for each.
func (r *Redis) Missing() string { return r.missing }

func version(ctx context.Context, c *redis.Client) string {
	info, _ := c.Info(ctx, "server").Result()
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// Client returns a client of the server with that policy, with at most that many connections; or why
// there is none.
func (r *Redis) Client(p Policy, connections int) (c *redis.Client, missing string) {
	addr, ok := r.addr[p]
	if !ok {
		return nil, r.missing
	}
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: connections, PoolTimeout: time.Minute}), ""
}

// Counters returns the processor time that the server with that policy has used so far.
func (r *Redis) Counters(ctx context.Context, p Policy) (used Counters, err error) {
	c, missing := r.Client(p, 1)
	if c == nil {
		return used, errors.New(missing)
	}
	defer func() { _ = c.Close() }()
	info, err := c.Info(ctx, "cpu").Result()
	if err != nil {
		return used, fmt.Errorf("read the processor time of Redis: %w", err)
	}
	used.CPU, err = usedCPU(info)
	return used, err
}

// usedCPU sums the processor time in an INFO of Redis: that of the server, and of its children, which write its files
// anew.
func usedCPU(info string) (sum time.Duration, err error) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children":
			s, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("read the processor time of Redis: %s: %w", name, err)
			}
			sum += time.Duration(s * float64(time.Second))
		}
	}
	if sum == 0 {
		return 0, errors.New("read the processor time of Redis: its INFO has none")
	}
	return sum, nil
}

// Close ends the servers that were started, and removes their data.
func (r *Redis) Close() {
	for _, end := range slices.Backward(r.end) {
		end()
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
