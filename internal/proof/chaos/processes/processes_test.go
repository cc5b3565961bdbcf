package processes

import (
	"context"
	"fmt"
	"net/rpc"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/chaos"
	"github.com/etcdkit/etcdkit/internal/proof/check"
	"github.com/etcdkit/etcdkit/internal/proof/history"
)

// S3, F07: the leader is stopped for longer than the TTL, another is elected, and the
// first continues. Live leases that it has revoked are seen to end early, their holders
// notice it at once, and no effect of theirs is accepted afterwards. Whether it gets
// to revoke any is a matter of milliseconds, so it is tried three times: a test that does not see it shows less.
// The servers are processes of the test binary; ETCD_BINARY names others.
func TestTrapS3StoppedLeader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes a quarter of a minute")
	}
	if len(stopTheLeader(t, 1)) == 0 {
		t.Skip("three times the leader had no lease revoked: nothing was shown")
	}
}

// stopTheLeader stops the leader of three members until leases end early for it, three times at most, and returns these.
func stopTheLeader(t *testing.T, seed chaos.Seed) []Early {
	t.Helper()
	dir, err := os.MkdirTemp("", "s3-") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	c := Config{
		Binary: os.Args[0], Env: []string{serverEnv + "=1"}, Dir: dir, Seed: seed,
		Clients: 3, Sessions: 8, Rate: 60,
		Nemeses: []string{StopLeader}, Stops: 3, TTL: 8 * time.Second, Duration: time.Millisecond, Progress: t.Logf,
	}
	if binary := os.Getenv("ETCD_BINARY"); binary != "" {
		c.Binary, c.Env = binary, nil
	}
	res, err := Run(context.Background(), c)
	require.NoError(t, err)
	t.Log(res)
	if res.Report.Verdict == check.Red || res.Report.Verdict == check.Inconclusive {
		checkers, err := check.Suite(res.History)
		require.NoError(t, err)
		replay, err := res.Report.Save(os.TempDir(), res.History, checkers...)
		require.NoError(t, err)
		t.Fatalf("%v\nto judge it again: %s\nlogs: %s", res, replay, dir)
	}
	require.NoError(t, os.RemoveAll(dir))
	return res.Early
}

// The deadline that holders knew separates early ends from others.
func TestEarlyEnds(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	for name, tt := range map[string]struct {
		deleted int64 // seen
		until   int64 // the deadline that was last recorded
		to      int64 // the last confirmation
		more    []history.Event
		want    []Early
	}{
		"expired":               {deleted: 5 * s, until: 4 * s, to: 4 * s},
		"early":                 {deleted: 3 * s, until: 4 * s, to: 3*s + s/100, want: []Early{{Lease: 7, At: 3 * s, By: 2 * time.Second, Permits: 1, Blind: time.Second / 100}}},
		"early, and known late": {deleted: 3 * s, until: 4 * s, to: 4*s - 1, want: []Early{{Lease: 7, At: 3 * s, By: 2 * time.Second, Permits: 1, Blind: time.Second - 1}}},
		"closed": {deleted: 3 * s, until: 4 * s, to: 3*s - 1, more: []history.Event{
			{At: 3*s - 1, Kind: history.KindCall, Client: "c", Op: 9, Name: history.Close, Lease: 7},
		}},
		"early, and its client was stopped": {deleted: 3 * s, until: 4 * s, to: 4*s - 1, more: []history.Event{
			{At: 2 * s, Kind: history.KindBegin, Op: 8, Name: ClientPaused, Client: "c"},
			{At: 4 * s, Kind: history.KindFinish, Op: 8, Name: ClientPaused, Client: "c"},
		}, want: []Early{{Lease: 7, At: 3 * s, By: 2 * time.Second, Permits: 1}}},
		"early, and an effect came too late": {deleted: 3 * s, until: 4 * s, to: 3 * s, more: []history.Event{
			{At: 3*s + 1, Kind: history.KindEffect, Client: "c", Gate: "mutex/m", Token: 12, Outcome: history.Fail},
		}, want: []Early{{Lease: 7, At: 3 * s, By: 2 * time.Second, Permits: 1, Refused: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			key := func(k string) *history.KV { return &history.KV{Key: history.Bytes("/p/" + k), Create: 11, Lease: 7} }
			request := key("mutex/m/queue/light/0000000000000007-0000")
			request.Create = 12
			h := history.Merge(&history.History{Events: append([]history.Event{
				{At: s, Kind: history.KindPut, Rev: 11, KV: key("session/0000000000000007/alive")},
				{At: s, Kind: history.KindPut, Rev: 12, KV: request},
				{At: s, Kind: history.KindGranted, Client: "c", Op: 1, Gate: "mutex/m", Token: 12, Weight: 1},
				{At: 2 * s, Kind: history.KindHeld, Client: "c", Op: 1, Gate: "mutex/m", Token: 12, Until: tt.until},
				{At: tt.deleted, Kind: history.KindDelete, Rev: 13, KV: key("session/0000000000000007/alive")},
				{At: tt.deleted, Kind: history.KindDelete, Rev: 13, KV: request},
				{At: 5 * s, Kind: history.KindEnded, Client: "c", Op: 1, Gate: "mutex/m", Token: 12, Cause: history.Lost, Held: tt.to, Until: tt.until},
			}, tt.more...)})
			require.Equal(t, tt.want, earlyEnds(h))
		})
	}
}

// An attempt in the middle of which its process was killed is distinguished from one that had
// returned, and from those of clients that live; and so is what came after it.
func TestKillsInRequests(t *testing.T) {
	t.Parallel()
	const s, gate = int64(time.Second), "idempotency/s/record/k"
	start := func(at int64, client string, n, token int64) history.Event {
		return history.Event{At: at, Kind: history.KindCall, Client: client, Op: 2, Name: history.RequestStart, Gate: gate, N: n, Token: token,
			Attr: map[string]string{"call": history.Tag(client, 1)}}
	}
	ask := func(at int64, client string) history.Event {
		return history.Event{At: at, Kind: history.KindCall, Client: client, Op: 1, Name: history.RequestDo, Gate: gate}
	}
	reported := func(at int64, client, cause string) history.Event {
		return history.Event{At: at, Kind: history.KindReturn, Client: client, Op: 1, Name: history.RequestDo, Gate: gate, Outcome: history.OK, Cause: cause}
	}
	for name, tt := range map[string]struct {
		victim string
		then   []history.Event
		want   Kills
	}{
		"in the middle":         {victim: "c", want: Kills{Attempts: 1}},
		"another client":        {victim: "d"},
		"its call had returned": {victim: "c", then: []history.Event{reported(3*s, "c", history.Ran)}},
		"its function had returned": {victim: "c", then: []history.Event{
			{At: 3 * s, Kind: history.KindCall, Client: "c", Op: 3, Name: history.Release, Gate: gate, Token: 12},
		}, want: Kills{Returned: 1}},
		"taken over":     {victim: "c", then: []history.Event{ask(5*s, "d"), start(6*s, "d", 2, 15)}, want: Kills{Attempts: 1, Next: 1}},
		"done anew":      {victim: "c", then: []history.Event{ask(5*s, "d"), start(6*s, "d", 1, 15)}, want: Kills{Attempts: 1}},
		"unknown":        {victim: "c", then: []history.Event{ask(5*s, "d"), reported(6*s, "d", history.UnknownFate)}, want: Kills{Attempts: 1, Unknown: 1}},
		"unknown before": {victim: "c", then: []history.Event{ask(s/2, "d"), reported(s, "d", history.UnknownFate)}, want: Kills{Attempts: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, killsInRequests(history.Merge(&history.History{Events: append([]history.Event{
				ask(s, "c"), start(2*s, "c", 1, 12), {At: 4 * s, Kind: history.KindBegin, Op: 9, Name: ClientKilled, Client: tt.victim},
			}, tt.then...)})))
		})
	}
}

// Permits that a pause beyond the TTL cost are separated from those that ended before, and from
// those that a client continued to use.
func TestLongPauses(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	ended := func(at int64, cause string, held int64) history.Event {
		return history.Event{At: at, Kind: history.KindEnded, Client: "c", Op: 1, Gate: "mutex/m", Token: 12, Cause: cause, Held: held}
	}
	killed := history.Event{At: 4 * s, Kind: history.KindBegin, Op: 9, Name: ClientKilled, Client: "c"}
	for name, tt := range map[string]struct {
		until                   int64 // the end of the pause
		then                    []history.Event
		sessions, permits, used int
	}{
		"lost":                   {9 * s, []history.Event{ended(9*s-1, history.Deadline, 2*s)}, 1, 1, 0},
		"lost, noticed by watch": {9 * s, []history.Event{ended(9*s+1, history.Lost, 2*s)}, 1, 1, 0},
		"used":                   {9 * s, []history.Event{ended(9*s+5, history.Released, 9*s+1)}, 1, 0, 1},
		"used, before the parent noted that it continues": {9 * s, []history.Event{ended(9*s-1, history.Released, 9*s-2)}, 1, 0, 1},
		"released before":  {9 * s, []history.Event{ended(3*s-1, history.Released, 2*s)}, 1, 0, 0},
		"a shorter pause":  {5 * s, []history.Event{ended(5*s+1, history.Released, 5*s)}, 0, 0, 0},
		"killed meanwhile": {9 * s, []history.Event{killed}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := history.Merge(&history.History{Events: append([]history.Event{
				{At: s, Kind: history.KindGranted, Client: "c", Op: 1, Gate: "mutex/m", Token: 12, Weight: 1},
				{At: 3 * s, Kind: history.KindBegin, Op: 8, Name: ClientPaused, Client: "c"},
				{At: tt.until, Kind: history.KindFinish, Op: 8, Name: ClientPaused, Client: "c"},
			}, tt.then...)})
			p := longPauses(h, 5*time.Second)
			require.Equal(t, []int{tt.sessions, tt.permits, tt.used}, []int{p.Sessions, p.Permits, len(p.Used)}, "%v", p)
		})
	}
}

// Clients go through the phases together, and write to the same registers.
func TestControl(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "control-") //nolint:usetesting // likewise
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c, err := newControl(filepath.Join(dir, "s"))
	require.NoError(t, err)
	t.Cleanup(c.close)
	client := func() *rpc.Client {
		conn, err := rpc.Dial("unix", filepath.Join(dir, "s"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	a, b := client(), client()
	accepted, n := remote{"left", a}.Write(5)
	require.Equal(t, "true 1", fmt.Sprint(accepted, n))
	accepted, n = remote{"left", b}.Write(4)
	require.Equal(t, "false 2", fmt.Sprint(accepted, n))
	accepted, n = remote{"right", b}.Write(4)
	require.Equal(t, "true 1", fmt.Sprint(accepted, n))

	var pa Phase
	next := a.Go("Control.Next", Faults, &pa, nil)
	c.begin(Stop)
	<-next.Done
	require.NoError(t, next.Error)
	require.Equal(t, Stop, pa)
	var pb Phase
	require.NoError(t, b.Call("Control.Next", Faults, &pb), "a later caller gets the phase at once")
	require.Equal(t, Stop, pb)

	require.NoError(t, a.Call("Control.Done", Report{"a", Stop, []string{"bad"}}, nil))
	stop := make(chan struct{})
	close(stop)
	findings, missing := c.wait(Stop, stop, "a", "b")
	require.Equal(t, "[a: bad] [b]", fmt.Sprint(findings, missing))
	require.NoError(t, b.Call("Control.Done", Report{"b", Stop, nil}, nil))
	findings, missing = c.wait(Stop, t.Context().Done(), "a", "b")
	require.Equal(t, "[a: bad] []", fmt.Sprint(findings, missing))

	waits := a.Go("Control.Next", Stop, &pa, nil)
	c.close()
	<-waits.Done
	require.True(t, waits.Error != nil && !strings.Contains(waits.Error.Error(), "panic"), "the end of the run ends it")
}

// A session that is lost has met a fault that explains it: what stops a proxy explains nothing of a session that is not
// behind it.
func TestLosses(t *testing.T) {
	t.Parallel()
	const s = int64(time.Second)
	strike := func(name, client string, from, to int64) []history.Event {
		return []history.Event{{At: from, Kind: history.KindBegin, Op: 8, Name: name, Client: client}, {At: to, Kind: history.KindFinish, Op: 8, Name: name, Client: client}}
	}
	for name, tt := range map[string]struct {
		client         string
		events         []history.Event
		sessions, lost int
	}{
		"nothing has happened":                   {"c1.1.0", nil, 1, 1},
		"a server was killed":                    {"c1.1.0", strike("kill-server", "", 15*s, 16*s), 1, 0},
		"long before":                            {"c1.1.0", strike("kill-server", "", 5*s, 6*s), 1, 1},
		"the history was compacted":              {"c1.1.0", strike("compaction", "", 15*s, 16*s), 1, 1},
		"the proxy was stopped":                  {"c1.1.0", strike(ProxyStopped, "", 12*s, 19*s), 1, 1},
		"the proxy was stopped, and it is there": {"c0.1.0", strike(ProxyStopped, "", 12*s, 19*s), 1, 0},
		"the process was stopped":                {"c1.1.0", strike(ClientPaused, "c1.1.0", 12*s, 19*s), 1, 0},
		"another process was stopped":            {"c1.1.0", strike(ClientPaused, "c2.1.0", 12*s, 19*s), 1, 1},
		"the process was killed":                 {"c1.1.0", strike(ClientKilled, "c1.1.0", 12*s, 50*s), 0, 0},
		"the session was closed":                 {"c1.1.0", []history.Event{{At: 19 * s, Kind: history.KindCall, Client: "c1.1.0", Op: 9, Name: history.Close, Lease: 7}}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			key := &history.KV{Key: history.Bytes("/p/session/0000000000000007/alive"), Create: 11, Lease: 7}
			request := &history.KV{Key: history.Bytes("/p/mutex/m/queue/light/0000000000000007-0000"), Create: 12, Lease: 7}
			h := history.Merge(&history.History{Events: append([]history.Event{
				{At: s, Kind: history.KindPut, Rev: 11, KV: key},
				{At: s, Kind: history.KindPut, Rev: 12, KV: request},
				{At: s, Kind: history.KindGranted, Client: tt.client, Op: 1, Gate: "mutex/m", Token: 12, Weight: 1},
				{At: 20 * s, Kind: history.KindDelete, Rev: 13, KV: key},
			}, tt.events...)})
			l := losses(h, 5*time.Second, func(client string) bool { return strings.HasPrefix(client, "c0.") })
			require.Equal(t, []int{tt.sessions, tt.lost}, []int{l.Sessions, len(l.Unexplained)}, "%v", l)
		})
	}
}

// Each place for a client changes from one build to the other with every kill, and at any time half of the places
// have the other one.
func TestBuildsTakeTurns(t *testing.T) {
	t.Parallel()
	c := func(index int) *client { return &client{run: &run{Config: Config{Beside: "former"}}, index: index} }
	for life := 1; life < 5; life++ {
		require.NotEqual(t, c(0).other(life), c(0).other(life+1))
		require.NotEqual(t, c(0).other(life), c(1).other(life))
	}
	former := c(0)
	former.life = 2
	path, err := former.build()
	require.NoError(t, err)
	require.Equal(t, "former", path)
	alone := &client{run: &run{}, life: 2}
	path, err = alone.build()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, self, path)
	require.Equal(t, 2, (&run{Config: Config{Beside: "former"}, clients: []*client{{index: 0, life: 3}, {index: 1, life: 1}}}).besides())
	require.Zero(t, (&run{clients: []*client{{index: 0, life: 3}}}).besides())
}
