package check

import (
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// Settings that checkers read, with their defaults. A run sets them with
// Recorder.Set.
const (
	// SettingSuite names the suite of checkers. Defaults to "concurrency".
	SettingSuite = "suite"
	// SettingLayout names the layout of keys: LayoutEtcdkit, or LayoutEtcd for
	// the locks of etcd's own client. Defaults to LayoutEtcdkit.
	SettingLayout = "layout"
	// SettingTTL is the sessions' TTL. Defaults to 15s.
	SettingTTL = "ttl"
	// SettingEarly lists, separated by commas, the nemeses that make etcd end
	// live leases early: a stopped and continued leader. What ends while they are
	// at work, or a TTL later, is excused. Defaults to none.
	SettingEarly = "early expiry"
	// SettingLag is how much later than it was made the tap may see a revision: what
	// a nemesis did is looked for that long after it. Defaults to 1s.
	SettingLag = "tap lag"
	// SettingReported is how long a request may be admitted, in a healthy cluster,
	// before its call returns. Defaults to 3s.
	SettingReported = "bound.reported"
	// SettingLeft is how long a key may stay, in a healthy cluster, after its
	// last use. Defaults to the TTL and 5s.
	SettingLeft = "bound.left"
	// SettingReturn is how long after the end of its context a call may return.
	// Defaults to 1s. Stalls of the whole process are added, see CountStall.
	SettingReturn = "bound.return"
	// SettingLinear is how long the linear checker may search, for each queue.
	// Defaults to 30s.
	SettingLinear = "linear.timeout"
	// SettingSkew is by how much the clocks of processes that run jobs may differ:
	// their MaxSkew. Defaults to 1m.
	SettingSkew = "jobs.skew"
	// SettingRetain is for how long the outcome of a request is kept that was resolved
	// by hand: the store's own Retain. Defaults to no bound.
	SettingRetain = "requests.retain"
	// SettingCacheFor is for how long an outcome may be replayed that is gone: the
	// store's CacheFor. Defaults to 10s.
	SettingCacheFor = "requests.cache"
	// RequirePrefix begins the settings that say how often something must have
	// happened: "require:expiries" = "1".
	RequirePrefix = "require:"
	// ToleratePrefix begins the settings that say how often something may happen
	// before the run is inconclusive: "tolerate:uncaused leader changes" = "3".
	ToleratePrefix = "tolerate:"
)

// CountStall is the counter by which a harness records that a process was stopped: at
// At, for N nanoseconds. It is the process of Client, or of all clients if that is
// empty.
const CountStall = "stall"

// CountSlow is the counter by which a harness records that etcd itself was slow: until At,
// for N nanoseconds, a write had not come to all members.
const CountSlow = "slow"

// Slow returns for how much of the time between two instants etcd was slow, as the harness
// has recorded.
func Slow(h *history.History, from, to int64) int64 { return overlap(counted(h, CountSlow), from, to) }

// overlap returns how much of the times that were counted is between two instants.
func overlap(counts []*history.Event, from, to int64) (sum int64) {
	for _, e := range counts {
		sum += max(min(e.At, to)-max(e.At-e.N, from), 0)
	}
	return sum
}

// counted returns the counts of a name.
func counted(h *history.History, name string) (all []*history.Event) {
	for i, e := range h.Events {
		if e.Kind == history.KindCount && e.Name == name {
			all = append(all, &h.Events[i])
		}
	}
	return all
}

// early returns the nemeses after which leases may end early.
func early(h *history.History) map[string]bool {
	names := map[string]bool{}
	for name := range strings.SplitSeq(h.Setting(SettingEarly), ",") {
		if name = strings.TrimSpace(name); name != "" {
			names[name] = true
		}
	}
	return names
}

func duration(h *history.History, setting string, normal time.Duration) int64 {
	if d, err := time.ParseDuration(h.Setting(setting)); err == nil {
		return int64(d)
	}
	return int64(normal)
}

func ttl(h *history.History) int64 { return duration(h, SettingTTL, 15*time.Second) }

// numbers returns the settings below a prefix that are numbers.
func numbers(h *history.History, prefix string) map[string]int64 {
	values := map[string]int64{}
	for name, value := range h.Settings(prefix) {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			values[name] = n
		}
	}
	return values
}
