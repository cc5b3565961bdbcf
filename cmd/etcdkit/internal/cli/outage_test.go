package cli

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// stage is a writer that calls a function for each text in turn, when it is first written after the text
// before.
type stage struct {
	bytes.Buffer
	seen int
	acts []act
}

type act struct {
	at string
	do func()
}

func (s *stage) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	for len(s.acts) > 0 {
		at := strings.Index(s.String()[s.seen:], s.acts[0].at)
		if at < 0 {
			break
		}
		s.seen += at + len(s.acts[0].at)
		s.acts[0].do()
		s.acts = s.acts[1:]
	}
	return n, err
}

// A verb that prints changes says when etcd is away, and when it is back.
func TestFollowingThroughAnOutage(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	defer cancel(nil)
	sm, err := concurrency.NewSemaphore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "charge", 2, nil)
	require.NoError(t, err)
	_, err = sm.Acquire(ctx)
	require.NoError(t, err)
	out := &stage{acts: []act{{"semaphore/charge", func() { assert.NoError(t, etcd.Crash(0)) }}}}
	errs := &stage{acts: []act{
		{"etcd does not answer", func() { assert.NoError(t, etcd.Restart(ctx, 0)) }},
		{"etcd answers again", func() { cancel(interrupted{syscall.SIGINT}) }},
	}}
	args := []string{"show", "-w", "-N", "test", "charge", "--endpoints", strings.Join(etcd.Endpoints(), ","), "--command-timeout", "300ms"}
	require.Equal(t, 130, execute(ctx, args, Streams{In: strings.NewReader(""), Out: out, Err: errs}), errs.String())
	require.Contains(t, errs.String(), "refused")
}

// The table on a screen survives an outage.
func TestTopThroughAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	c := f.etcd.NewClient(t, nil)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	sess := testkit.SessionOn(t, c.Client, f.prefix, nil)
	const table = "semaphore/charge"
	out := &stage{acts: []act{{table, c.Cut}, {"does not answer", c.Heal}, {table, cancel}}}
	a := &app{std: Streams{Out: out}, output: "table", etcd: connection{timeout: 300 * time.Millisecond}}
	require.ErrorIs(t, a.redraw(ctx, sess, time.Millisecond, 20, true, true), context.Canceled)
	require.Empty(t, out.acts)
}

// If etcd does not answer at its end, evict does not claim that the holder still holds.
func TestEvictThroughAnOutage(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, nil)
	ctx := testkit.Context(t)
	sm, err := concurrency.NewSemaphore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "charge", 2, nil)
	require.NoError(t, err)
	p, err := sm.Acquire(ctx)
	require.NoError(t, err)
	crashed := make(chan error, 1)
	go func() {
		<-p.StopRequested().Done()
		crashed <- etcd.Crash(0)
	}()
	var out, errs bytes.Buffer
	args := []string{"evict", "-N", "test", "charge", strconv.FormatInt(p.Token(), 10), "--yes", "--wait", "1s", "--endpoints", strings.Join(etcd.Endpoints(), ","), "--command-timeout", "500ms"}
	require.Equal(t, exitUnreachable, execute(ctx, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs}), errs.String())
	require.NoError(t, testkit.Got(t, crashed, "the holder is asked"))
	require.NotContains(t, errs.String(), "still holds")
}

// A slow etcd is no outage: verbs that read many names have --command-timeout for each answer.
func TestManyNamesOnASlowEtcd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	l, err := schedlock.New(f.session("web-7"), nil)
	require.NoError(t, err)
	const jobs = 80
	for n := range jobs {
		_, err := l.Do(ctx, strconv.Itoa(n), nothing, schedlock.Tick(tick(0)))
		require.NoError(t, err)
	}
	c := f.etcd.NewClient(t, nil)
	sess := testkit.SessionOn(t, c.Client, f.prefix, nil)
	c.Inject(embedtest.Fault{Method: "Txn", Times: -1, Before: func() { time.Sleep(400 * time.Millisecond) }})
	var out bytes.Buffer
	a := &app{std: Streams{Out: &out}, output: "table", etcd: connection{timeout: 3 * time.Second}}
	began := time.Now()
	require.NoError(t, a.listJobs(ctx, sess))
	require.Greater(t, time.Since(began), a.etcd.timeout, "or this shows nothing")
	require.Equal(t, jobs+1, strings.Count(out.String(), "\n"))
}

// The listing of all kinds of queue takes longer than --command-timeout, which bounds each answer.
func TestLsOnASlowEtcd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.crowd("charge")
	s := f.session("web-7")
	m, err := concurrency.NewMutex(s, "report")
	require.NoError(t, err)
	f.permit(m.Lock(testkit.Context(t)))
	el, err := concurrency.NewElection(s, "shard")
	require.NoError(t, err)
	f.permit(el.Campaign(testkit.Context(t)))
	c := f.etcd.NewClient(t, nil)
	sess := testkit.SessionOn(t, c.Client, f.prefix, nil)
	c.Inject(embedtest.Fault{Method: "Range", Times: -1, Before: func() { time.Sleep(800 * time.Millisecond) }})
	var out bytes.Buffer
	a := &app{std: Streams{Out: &out}, output: "table", etcd: connection{timeout: 3 * time.Second}}
	began := time.Now()
	require.NoError(t, a.listQueues(testkit.Context(t), sess))
	require.Greater(t, time.Since(began), a.etcd.timeout, "or this shows nothing")
	require.Contains(t, out.String(), "election/shard")
}

// Without space nothing was tested, so no promise is broken. What is next is said, and doctor examines the
// namespace all the same.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{QuotaBytes: 2 << 20})
	ctx := testkit.Context(t)
	sm, err := concurrency.NewSemaphore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "charge", 2, nil)
	require.NoError(t, err)
	_, err = sm.Acquire(ctx)
	require.NoError(t, err)
	execs := func(line string) (code int, out string) {
		var both bytes.Buffer
		code = execute(ctx, append(strings.Fields(line), "-N", "test", "--endpoints", strings.Join(etcd.Endpoints(), ",")), Streams{In: strings.NewReader(""), Out: &both, Err: &both})
		return code, both.String()
	}
	code, out := execs("hold production --id deploy-42 --for 5m")
	require.Zero(t, code, out)
	store, err := idempotency.NewStore(testkit.SessionOn(t, etcd.Client(), "/etcdkit", nil), "orders", nil)
	require.NoError(t, err)
	_, err = idempotency.Do(ctx, store, order("1"), "payload", func(context.Context, *idempotency.Attempt) (int, error) { return 7, nil })
	require.NoError(t, err)
	r, _, err := store.Get(ctx, store.Ref(order("1")))
	require.NoError(t, err)
	for n := 0; err == nil; n++ {
		_, err = etcd.Client().Put(ctx, "junk/"+strconv.Itoa(n), strings.Repeat("x", 100_000))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	for line, want := range map[string]string{
		"conformance --yes --only Limit": "is out of space",
		"limit charge 3":                 "is out of space",
		"doctor":                         "2 queues\n",
		"show charge":                    "used 1",
	} {
		code, out := execs(line)
		require.Equal(t, line == "show charge", code == exitOK, out)
		require.Contains(t, out, want, line)
		require.NotContains(t, out, "broken", line)
	}
	// What only frees something works.
	for _, line := range []string{"release production --id deploy-42", fmt.Sprintf("requests delete orders %s --revision %d --yes", r.Ref, r.Revision)} {
		code, out := execs(line)
		require.Zero(t, code, out)
	}
	_, out = execs("show mutex/production")
	require.Contains(t, out, "used 0")
}

// Without a majority, a verb that reads says that there is no leader.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	etcd := embedtest.Start(t, &embedtest.Options{Members: 3})
	require.NoError(t, etcd.Stop(1))
	require.NoError(t, etcd.Stop(2))
	var out bytes.Buffer
	code := execute(testkit.Context(t), []string{"ls", "-N", "test", "--endpoints", etcd.Endpoints()[0], "--command-timeout", "2s"}, Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	require.Equal(t, exitUnreachable, code)
	require.Contains(t, out.String(), "no leader")
}
