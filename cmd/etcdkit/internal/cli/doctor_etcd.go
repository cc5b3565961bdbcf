package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/keyspace"
)

// answer is what one endpoint has answered.
type answer struct {
	endpoint string
	status   *clientv3.StatusResponse
	took     time.Duration
	err      error
}

// endpoints asks each endpoint by itself, at the same time.
func (d *doctor) endpoints(ctx context.Context) (found []finding) {
	answers := make([]answer, len(d.client.Endpoints()))
	var wg sync.WaitGroup
	for i, at := range d.client.Endpoints() {
		wg.Go(func() {
			asked := time.Now()
			st, err := d.client.Status(ctx, at)
			if config, e := d.app.etcd.config(ctx); err != nil && e == nil {
				only := *config
				only.Endpoints = []string{at}
				err = withReasonOf(only, err)
			}
			answers[i] = answer{at, st, time.Since(asked), err}
		})
	}
	wg.Wait()
	answered := 0
	for _, a := range answers {
		if code, _ := classify(a.err); code != exitUnreachable {
			answered++
		}
		found = append(found, a.findings(d.slow)...)
	}
	if d.mute = answered == 0; d.mute {
		return append(found, one(levelFail, "Check --endpoints (ETCDCTL_ENDPOINTS) and --cacert, and whether etcd runs.", "no endpoint answers")...)
	}
	return append(found, agreement(answers)...)
}

// findings judges one endpoint. slow is how long it may take to connect and to answer.
func (a answer) findings(slow time.Duration) []finding {
	if a.err != nil {
		f := notMade(a.endpoint, a.err)
		if code, _ := classify(a.err); code == exitUnreachable {
			f[0].Level, f[0].Advice = levelWarn, "The member is down or cut off, or the address is wrong. With a majority of members everything continues."
		}
		return f
	}
	st := a.status
	found := one(levelOK, "", "%s: etcd %s, answered in %s, term %d, revision %d", a.endpoint, st.Version, millis(a.took), st.RaftTerm, st.Header.GetRevision())
	if st.Leader == 0 {
		found = append(found, one(levelFail, "The member has lost contact with the majority: nothing is granted through it.", "%s: no leader", a.endpoint)...)
	}
	if st.IsLearner {
		found = append(found, one(levelWarn, "A learner serves no clients: take it out of --endpoints.", "%s is a learner", a.endpoint)...)
	}
	if a.took > slow {
		found = append(found, one(levelWarn, "Each acquire waits for etcd once: look for a slow disk, a busy machine or a far network.", "%s: slow: answered in %s", a.endpoint, millis(a.took))...)
	}
	found = append(found, version(a.endpoint, st.Version)...)
	found = append(found, alarms(a.endpoint, st.Errors)...)
	return append(found, size(a.endpoint, st.DbSize, st.DbSizeInUse, st.DbSizeQuota)...)
}

// millis returns a duration in milliseconds as text.
func millis(d time.Duration) string {
	if d < time.Millisecond {
		return "<1ms"
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}

// floors are the oldest good patch releases of the lines that etcdkit supports: docs/operations.md.
var floors = map[string]int{"3.5": 33, "3.6": 14, "3.7": 1}

// version judges the version of a member.
func version(endpoint, version string) []finding {
	parts := strings.SplitN(version, ".", 3)
	patch, err := 0, error(nil)
	if len(parts) == 3 {
		digits, _, _ := strings.Cut(parts[2], "-")
		patch, err = strconv.Atoi(digits)
	}
	if len(parts) != 3 || err != nil {
		return one(levelWarn, "etcdkit supports 3.5.33, 3.6.14, 3.7.1 and later ones of these lines.", "%s: version %q is not known", endpoint, version)
	}
	line := parts[0] + "." + parts[1]
	floor, known := floors[line]
	switch {
	case known && patch >= floor:
		return nil
	case known:
		return one(levelFail, "Older ones can lose live leases or show stale reads: see docs/operations.md, versions of etcd.", "%s: etcd %s is older than %s.%d", endpoint, version, line, floor)
	}
	return one(levelWarn, "etcdkit is tested with 3.5, 3.6 and 3.7: see docs/operations.md, versions of etcd.", "%s: etcd %s is of a line that etcdkit is not tested with", endpoint, version)
}

// alarms judges the alarms of a member.
func alarms(endpoint string, raised []string) (found []finding) {
	for _, alarm := range raised {
		switch {
		case strings.Contains(alarm, "NOSPACE"):
			found = append(found, one(levelFail, "etcd refuses writes: nothing new is admitted. See docs/operations.md, etcd is out of space.", "%s: alarm NOSPACE", endpoint)...)
		case strings.Contains(alarm, "CORRUPT"):
			found = append(found, one(levelFail, "Members differ in their data. Replace the corrupt member, see etcd's documentation; until then nothing can be trusted.", "%s: alarm CORRUPT", endpoint)...)
		default:
			found = append(found, one(levelWarn, "See etcd's log.", "%s: %s", endpoint, alarm)...)
		}
	}
	return found
}

// size judges the size of a member's database. quota is 0 where the member does not report it.
func size(endpoint string, db, inUse, quota int64) []finding {
	const advice = "Turn compaction on and defragment: see docs/operations.md, compaction and quota."
	text := fmt.Sprintf("%s: database %s, in use %s", endpoint, mib(db), mib(inUse))
	switch {
	case quota <= 0:
		return one(levelOK, "", "%s; before 3.6 a member does not report its quota (2 GiB by default)", text)
	case inUse >= quota*8/10:
		return one(levelFail, advice+" At the quota etcd refuses writes.", "%s of a quota of %s", text, mib(quota))
	case db >= quota*8/10:
		return one(levelWarn, advice+" The file is near the quota; its free part is used again first.", "%s of a quota of %s", text, mib(quota))
	}
	return one(levelOK, "", "%s of a quota of %s", text, mib(quota))
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// agreement judges what the members say of each other.
func agreement(answers []answer) (found []finding) {
	leaders, clusters := map[uint64]bool{}, map[uint64]bool{}
	for _, a := range answers {
		if a.err == nil {
			clusters[a.status.Header.GetClusterId()] = true
			if a.status.Leader != 0 {
				leaders[a.status.Leader] = true
			}
		}
	}
	if len(clusters) > 1 {
		return one(levelFail, "Permits of one are unknown to the other: correct --endpoints, and those of all services.", "the endpoints are of %d clusters", len(clusters))
	}
	if len(leaders) > 1 {
		return one(levelWarn, "An election is under way, or a member is cut off. Run doctor again.", "the members name %d leaders", len(leaders))
	}
	return nil
}

// key is one that the user may read: of the namespace, or the beginning of all of them.
func (d *doctor) key() (string, error) {
	if space, err := d.app.etcd.space(); err == nil {
		return space.Root(), nil
	}
	return keyspace.Namespaces(d.app.etcd.prefix)
}

// majority reads with a majority, as each admission does.
func (d *doctor) majority(ctx context.Context) []finding {
	const times = 5
	var least, most time.Duration
	key, err := d.key()
	if err != nil {
		return one(levelFail, "Correct --prefix.", "%v", err)
	}
	for range times {
		asked := time.Now()
		_, err := d.client.Get(ctx, key, clientv3.WithCountOnly())
		took := time.Since(asked)
		if code, _ := classify(err); code == exitDenied {
			return one(levelWarn, "The role of the user must cover the namespace: see docs/operations.md, roles.", "may not read: %v", err)
		}
		if err != nil {
			d.cut = true
			return one(levelFail, "No majority of members answers: nothing is granted, and permits end with their leases. Start the members that are down.", "a read by a majority failed: %v", err)
		}
		if most = max(most, took); least == 0 || took < least {
			least = took
		}
	}
	return one(levelOK, "", "a majority answers in %s to %s", millis(least), millis(most))
}

// auth reports whether users are checked.
func (d *doctor) auth(ctx context.Context) []finding {
	st, err := d.client.AuthStatus(ctx)
	if err == nil && st.Enabled { // etcd 3.7 answers that without a user, too
		if _, denied := d.client.Get(ctx, "etcdkit", clientv3.WithCountOnly()); noUser(denied) {
			err = denied
		}
	}
	code, _ := classify(err)
	switch {
	case noUser(err):
		d.cut = true // each check of what is in etcd would say the same
		return one(levelFail, "Add --user (ETCDCTL_USER), and its password. Nothing else can be examined without it.", "users are checked, and no user is given")
	case code == exitDenied:
		return one(levelOK, "", "users are checked")
	case err != nil:
		return notMade("whether users are checked", err)
	case !st.Enabled:
		return one(levelWarn, "Each client may read and end all permits. With users, a role for each namespace: see docs/operations.md, roles.", "users are not checked")
	}
	return one(levelOK, "", "users are checked")
}
