package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mute reports whether no endpoint answers.
func (s Survey) Mute() bool {
	return !slices.ContainsFunc(s.Answers, func(a Answer) bool { return a.Err == nil || !away(a.Err) })
}

// Foreign reports whether all that answers is no etcd: what else is found there has this one cause.
func (s Survey) Foreign() bool {
	of := func(kinds ...kind) bool {
		return slices.ContainsFunc(s.Answers, func(a Answer) bool { return slices.Contains(kinds, a.kind()) })
	}
	return of(other) && !of(member, proxied)
}

// Endpoints judges each endpoint, and what they say of each other.
func (s Survey) Endpoints() (found []Finding) {
	for _, a := range s.Answers {
		found = append(found, s.endpoint(a)...)
	}
	if s.Mute() {
		return append(found, One(Fail, "Check --endpoints (ETCDCTL_ENDPOINTS), --cacert, and --cert and --key if etcd wants them, and whether etcd runs.", "no endpoint answers")...)
	}
	found = append(found, s.clusters()...)
	return append(found, s.lines()...)
}

func (s Survey) endpoint(a Answer) []Finding {
	switch a.kind() {
	case silent:
		return unreached(a)
	case other:
		return One(Fail, "etcdkit works with etcd alone: it needs leases, revisions and nested Txns as etcd has them. See docs/operations.md, works with.",
			"%s: no etcd: the server speaks its API, and names neither a cluster nor a member (as kine)", a.Endpoint)
	case proxied:
		return One(Fail, "Behind it watches can lose events, so that a limit is exceeded, renewals are answered late, and with users no lease is renewed. Give clients the addresses of the members.",
			"%s: etcd's gRPC proxy answers, and no member", a.Endpoint)
	}
	return s.judge(a)
}

// unreached judges an endpoint that has not answered.
func unreached(a Answer) []Finding {
	f := NotMade(a.Endpoint, a.Err)
	if away(a.Err) {
		f[0].Level, f[0].Advice = Warn, cmp.Or(Mistake(a.Err), "The member is down or cut off, or the address is wrong. With a majority of members everything continues.")
	}
	return f
}

// judge judges a member.
func (s Survey) judge(a Answer) []Finding {
	st := a.Status
	found := One(OK, "", "%s: etcd %s, answered in %s, term %d, revision %d", a.Endpoint, st.GetVersion(), Millis(a.Took), st.GetRaftTerm(), st.GetHeader().GetRevision())
	if st.GetLeader() == 0 {
		found = append(found, One(Fail, "The member has lost contact with the majority: nothing is granted through it.", "%s: no leader", a.Endpoint)...)
	}
	if st.GetIsLearner() {
		found = append(found, One(Warn, "A learner serves no clients: take it out of --endpoints.", "%s is a learner", a.Endpoint)...)
	}
	if a.Took > s.Slow {
		found = append(found, One(Warn, "Each acquire waits for etcd once: look for a slow disk, a busy machine or a far network.", "%s: slow: answered in %s", a.Endpoint, Millis(a.Took))...)
	}
	found = append(found, certificate(a.Endpoint, a.Expires, time.Now())...)
	found = append(found, version(a.Endpoint, st.GetVersion())...)
	return append(found, size(a.Endpoint, st.GetVersion(), st.GetDbSize(), st.GetDbSizeInUse(), st.GetDbSizeQuota())...)
}

// floors are the oldest good patch releases of the lines that etcdkit supports: docs/operations.md.
var floors = map[string]int{"3.5": 33, "3.6": 14, "3.7": 1}

// line returns the line of a version, such as 3.6, and its patch.
func line(version string) (line string, patch int, ok bool) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return "", 0, false
	}
	digits, _, _ := strings.Cut(parts[2], "-")
	patch, err := strconv.Atoi(digits)
	return parts[0] + "." + parts[1], patch, err == nil
}

// version judges the version of a member.
func version(endpoint, version string) []Finding {
	line, patch, ok := line(version)
	floor, known := floors[line]
	switch {
	case !ok:
		return One(Warn, "etcdkit supports 3.5.33, 3.6.14, 3.7.1 and later ones of these lines.", "%s: version %q is not known", endpoint, version)
	case known && patch >= floor:
		return nil
	case known:
		return One(Fail, "Older ones can lose live leases or show stale reads: see docs/operations.md, versions of etcd.", "%s: etcd %s is older than %s.%d", endpoint, version, line, floor)
	}
	return One(Warn, "etcdkit is tested with 3.5, 3.6 and 3.7: see docs/operations.md, versions of etcd.", "%s: etcd %s is of a line that etcdkit is not tested with", endpoint, version)
}

// lines warns of members of several lines.
func (s Survey) lines() []Finding {
	var lines []string
	for _, a := range s.Answers {
		if of, _, ok := line(a.Status.GetVersion()); ok && a.kind() == member && !slices.Contains(lines, of) {
			lines = append(lines, of)
		}
	}
	if len(lines) < 2 {
		return nil
	}
	slices.Sort(lines)
	return One(Warn, "Finish the upgrade or the downgrade: etcd supports several lines in one cluster only for its duration.", "the members are of the lines %s", strings.Join(lines, " and "))
}

// defaultQuota is that of a member without --quota-backend-bytes.
const defaultQuota = 2 << 30

// size judges the size of a member's database. quota is 0 where the member does not report it.
func size(endpoint, version string, db, inUse, quota int64) []Finding {
	const advice = "Turn compaction on and defragment one member at a time: see docs/operations.md, compaction and quota. While the leader is defragmented no lease is renewed: another one leads first."
	text := fmt.Sprintf("%s: database %s, in use %s", endpoint, MiB(db), MiB(inUse))
	switch {
	case quota <= 0 && inUse >= defaultQuota*8/10:
		return One(Warn, advice+" If --quota-backend-bytes is the default, etcd refuses writes soon.", "%s; the member does not report its quota (2 GiB by default)", text)
	case quota <= 0 && strings.HasPrefix(version, "3.5."):
		return One(OK, "", "%s; before 3.6 a member does not report its quota (2 GiB by default)", text)
	case quota <= 0:
		return One(OK, "", "%s; the member does not report its quota (2 GiB by default)", text)
	case inUse >= quota*8/10:
		return One(Fail, advice+" At the quota etcd refuses writes.", "%s of a quota of %s", text, MiB(quota))
	case db >= quota*8/10:
		return One(Warn, advice+" The file is near the quota; its free part is used again first.", "%s of a quota of %s", text, MiB(quota))
	}
	return One(OK, "", "%s of a quota of %s", text, MiB(quota))
}

// MiB returns a number of bytes as text.
func MiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// clusters judges what the members say of each other.
func (s Survey) clusters() []Finding {
	leaders, clusters := map[uint64]bool{}, map[uint64]bool{}
	for _, a := range s.Answers {
		if a.kind() == silent || a.kind() == other {
			continue
		}
		clusters[a.Status.GetHeader().GetClusterId()] = true
		if leader := a.Status.GetLeader(); leader != 0 {
			leaders[leader] = true
		}
	}
	if len(clusters) > 1 {
		return One(Fail, "Permits of one are unknown to the other: correct --endpoints, and those of all services.", "the endpoints are of %d clusters", len(clusters))
	}
	if len(leaders) > 1 {
		return One(Warn, "An election is under way, or a member is cut off. Run doctor again.", "the members name %d leaders", len(leaders))
	}
	return nil
}
