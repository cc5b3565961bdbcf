package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/testkit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// process is a process that runs jobs.
func (f *fixture) process(owner string) *schedlock.Locker {
	f.t.Helper()
	l, err := schedlock.New(f.session(owner), nil)
	require.NoError(f.t, err)
	return l
}

// tick is a fire time of this day.
func tick(n int) time.Time {
	return time.Now().Add(-time.Hour).Truncate(time.Hour).Add(time.Duration(n) * 5 * time.Minute)
}

func nothing(context.Context, *schedlock.Run) error { return nil }

// active starts a run that lasts until it is to end, or its context ends. done gets what the call returns.
func (f *fixture) active(l *schedlock.Locker, name string, opts ...schedlock.CallOption) (end func(), done <-chan error) {
	f.t.Helper()
	ended, started, returned := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := l.Do(testkit.Context(f.t), name, func(ctx context.Context, _ *schedlock.Run) error {
			close(started)
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, opts...)
		returned <- err
	}()
	testkit.Closed(f.t, started, "the run starts")
	return func() { close(ended) }, returned
}

func TestJobs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	f.shell("jobs -N test")
	l := f.process("web-7")
	_, err := l.Do(ctx, "invoices", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	_, err = l.Do(ctx, "sweep", nothing, schedlock.Tick(tick(0)), schedlock.Every(5*time.Minute))
	require.NoError(t, err)
	_, err = l.Do(ctx, "report", nothing, schedlock.Tick(tick(0)), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	end, done := f.active(l, "import", schedlock.Tick(tick(1)))
	f.shell("jobs pause -N test invoices")
	f.shell("jobs pause -N test invioces --reason 'database migration'")
	f.shell("jobs pause -N test invoices --reason 'database migration'")
	st, err := l.Status(ctx, "invoices")
	require.NoError(t, err)
	f.shows(st.Paused.By, "etcdkit jobs pause by ada@ci-3, process 4242")
	f.shell("jobs pause -N test import --reason 'disk is full' -o json")
	st, err = l.Status(ctx, "import")
	require.NoError(t, err)
	f.shows(st.Token, "4711")
	f.shows(st.Paused.By, "etcdkit jobs pause by ada@ci-3, process 4242")
	f.shell("jobs pause -N test new --reason 'not yet' --before-first-run")
	f.shell("jobs -N test")
	f.shell("jobs list -N test")
	f.shell("jobs -N test -o json")
	f.shell("jobs resume -N test invoices")
	f.shell("jobs resume -N test import -o json")
	f.shell("jobs resume -N test invioces")
	end()
	require.NoError(t, testkit.Got(t, done, "the run ends"))
	f.golden("jobs")
}

func TestJobsUnlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	l := f.process("web-7")
	_, done := f.active(l, "import", schedlock.Tick(tick(1)))
	st, err := l.Status(ctx, "import")
	require.NoError(t, err)
	f.shows(st.Token, "4711")
	f.shows(st.Token-1, "4700")
	f.shell("jobs unlock -N test import --reason 'host is gone'")
	f.shell("jobs unlock -N test import --yes")
	f.shell("jobs unlock -N test import --yes --reason 'host is gone'")
	f.shell("jobs unlock -N test import --token 4700 --yes --reason 'host is gone'")
	now, err := l.Status(ctx, "import")
	require.NoError(t, err)
	require.Equal(t, st.Token, now.Token, "none of these has ended it")
	f.shell("jobs unlock -N test import --token 4711 --yes --reason 'host is gone'")
	require.ErrorIs(t, testkit.Got(t, done, "the run ends"), schedlock.ErrUnlocked)
	f.shell("jobs unlock -N test import --token 4711 --yes --reason 'host is gone'")
	f.shell("jobs unlock -N test import --yes --reason 'host is gone'")
	_, err = l.Do(ctx, "report", nothing, schedlock.Tick(tick(1)), schedlock.AtLeast(time.Hour))
	require.NoError(t, err)
	f.shell("jobs unlock -N test report --reason 'once more'")
	f.shell("jobs unlock -N test report --yes --reason 'once more'")
	records, err := l.History(ctx, "import")
	require.NoError(t, err)
	f.shows(records[0].By, "etcdkit jobs unlock by ada@ci-3, process 4242")
	f.shell("jobs history -N test import")
	f.shell("jobs history -N test import -o json")
	f.shell("jobs -N test -o json")
	f.golden("jobs-unlock")
}

func TestJobsTrigger(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.process("web-7")
	end := make(chan struct{})
	job, err := l.Job("invoices", schedlock.Periods(24*time.Hour), func(context.Context, *schedlock.Run) error { <-end; return nil })
	require.NoError(t, err)
	job.Next(time.Now()) // as a cron library does
	f.shell("jobs trigger -N test invoices")
	require.NoError(t, l.Pause(testkit.Context(t), "invoices", "not yet", schedlock.BeforeFirstRun()))
	f.shell("jobs trigger -N test invoices --wait 1s")
	require.NoError(t, l.Resume(testkit.Context(t), "invoices"))
	f.shell("jobs trigger -N test invoices --wait 1m --reason 'customer waits'")
	close(end)
	f.golden("jobs-trigger")
}

func TestJobsForget(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	retired := f.session("web-7")
	l, err := schedlock.New(retired, nil)
	require.NoError(t, err)
	_, err = l.Do(ctx, "invoices-2024", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	_, err = f.process("web-8").Do(ctx, "invoices", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	require.NoError(t, retired.Close(ctx))
	f.shell("jobs -N test")
	f.shell("jobs forget -N test invoices-2024")
	f.shell("jobs forget -N test invoices-2024 --yes -o json")
	f.shell("jobs forget -N test invoices-2024 --yes")
	f.shell("jobs forget -N test invoices --yes")
	f.shell("jobs -N test")
	f.golden("jobs-forget")
}

func TestJobsHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	l := f.process("web-7")
	every := schedlock.Every(5 * time.Minute)
	_, err := l.Do(ctx, "sweep", nothing, schedlock.Tick(tick(0)), every)
	require.NoError(t, err)
	_, err = l.Do(ctx, "sweep", func(context.Context, *schedlock.Run) error { return errors.New("no space") }, schedlock.Tick(tick(1)), every)
	require.ErrorContains(t, err, "no space")
	dies := f.session("web-9")
	other, err := schedlock.New(dies, nil)
	require.NoError(t, err)
	_, done := f.active(other, "sweep", schedlock.Tick(tick(4)), every)
	_, err = f.etcd.Client().Revoke(ctx, dies.Lease())
	require.NoError(t, err)
	require.ErrorIs(t, testkit.Got(t, done, "the run ends"), schedlock.ErrLost)
	f.shell("jobs history -N test sweep")
	f.shell("jobs history -N test sweep --limit 1")
	f.shell("jobs history -N test sweep -o json")
	end, done := f.active(l, "sweep", schedlock.Tick(tick(5)), every)
	st, err := l.Status(ctx, "sweep")
	require.NoError(t, err)
	f.shows(st.Token, "4711")
	f.shell("jobs history -N test sweep --limit 1 -o json")
	end()
	require.NoError(t, testkit.Got(t, done, "the run ends"))
	f.shell("jobs history -N test nothing")
	f.shell("jobs history -N test sweep --limit -1")
	f.golden("jobs-history")
}

func TestSkippedTicks(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 23, 12, minute, 0, 0, time.UTC) }
	ran := func(minute, until int) schedlock.Record {
		return schedlock.Record{Tick: at(minute), State: schedlock.RunDone, Start: at(minute), End: at(until)}
	}
	const periodic = "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every 5m0s"
	for name, c := range map[string]struct {
		settings string
		records  []schedlock.Record
		want     string
	}{
		"none":             {periodic, []schedlock.Record{ran(10, 11), ran(5, 6)}, "10 done; 5 done"},
		"one":              {periodic, []schedlock.Record{ran(10, 11), ran(0, 1)}, "10 done; 5 skipped 1 until 5: not stored; 0 done"},
		"while it ran":     {periodic, []schedlock.Record{ran(20, 21), ran(0, 15)}, "20 done; 5 skipped 3 until 15: the run before; 0 done"},
		"some of that":     {periodic, []schedlock.Record{ran(20, 21), ran(0, 14)}, "20 done; 5 skipped 3 until 15: not stored; 0 done"},
		"by hand between":  {periodic, []schedlock.Record{ran(10, 11), ran(7, 8), ran(5, 6)}, "10 done; 7 done; 5 done"},
		"times of day":     {"AtMost 1h0m0s, AtLeast 0s, Retries 0", []schedlock.Record{ran(50, 51), ran(0, 1)}, "50 done; 0 done"},
		"no settings":      {"", []schedlock.Record{ran(50, 51), ran(0, 1)}, "50 done; 0 done"},
		"damaged settings": {"Every 5ns", []schedlock.Record{ran(50, 51), ran(0, 1)}, "50 done; 0 done"},
	} {
		var got []string
		for _, r := range withSkipped(c.records, c.settings) {
			text := fmt.Sprintf("%d %s", r.Tick.Minute(), r.State)
			if r.Skipped != nil {
				reason, _, _ := strings.Cut(r.Error, ":")
				text += fmt.Sprintf(" %d until %d: %s", r.Skipped.Count, r.Skipped.Until.Minute(), strings.TrimSuffix(reason, " was active"))
			}
			got = append(got, text)
		}
		require.Equal(t, c.want, strings.Join(got, "; "), name)
	}
}

func TestNextFire(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 3, 0, 0, time.UTC)
	st := schedlock.Status{Settings: "AtMost 1h0m0s, AtLeast 0s, Retries 0, Every 5m0s"}
	require.Equal(t, now.Add(2*time.Minute), st.NextFire(now))
	st.Last = &schedlock.Record{Tick: now.Add(2 * time.Minute)} // by a process whose clock is ahead
	require.Equal(t, now.Add(7*time.Minute), st.NextFire(now))
	st.Settings = "AtMost 1h0m0s, AtLeast 0s, Retries 0"
	require.Zero(t, st.NextFire(now))
}

// Each run is a line, with its start and its end; an interruption ends the stream.
func TestJobsWatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.also = []pattern{{regexp.MustCompile(`"token":"\d+"`), `"token":"4711"`}}
	l := f.process("web-7")
	ctx, cancel := context.WithCancelCause(testkit.Context(t))
	_, err := l.Do(ctx, "sweep", nothing, schedlock.Tick(tick(-1001)))
	require.NoError(t, err, "the job is known")
	read, write := io.Pipe()
	done := make(chan result, 1)
	go func() {
		var errs strings.Builder
		args := []string{"--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix, "jobs", "watch", "-N", "test", "sweep", "-o", "json"}
		code := execute(ctx, args, Streams{In: strings.NewReader(""), Out: write, Err: &errs})
		_ = write.Close()
		done <- result{code: code, err: errs.String()}
	}()
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(read); s.Scan(); {
			lines <- s.Text()
		}
	}()
	for n := 0; len(lines) == 0; n++ { // until the watch is open
		_, err := l.Do(ctx, "sweep", nothing, schedlock.Tick(tick(-1000+n)))
		require.NoError(t, err)
	}
	_, err = l.Do(ctx, "sweep", nothing, schedlock.Tick(tick(5)))
	require.NoError(t, err)
	_, ended := f.active(l, "sweep", schedlock.Tick(tick(6)))
	require.NoError(t, l.Unlock(ctx, "sweep", "host is gone"))
	require.ErrorIs(t, testkit.Got(t, ended, "the run ends"), schedlock.ErrUnlocked)
	f.script.WriteString("$ etcdkit jobs watch -N test sweep -o json\n")
	var states []schedlock.State
	for len(states) < 4 {
		var r struct {
			schema
			Name  string
			Tick  time.Time
			State schedlock.State
		}
		line := testkit.Got(t, lines, "a line")
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, []string{"etcdkit.run/v1", "sweep"}, []string{r.Schema, r.Name})
		if !r.Tick.Before(tick(5)) {
			states = append(states, r.State)
			f.script.WriteString(line + "\n")
		}
	}
	require.Equal(t, []schedlock.State{schedlock.RunActive, schedlock.RunDone, schedlock.RunActive, schedlock.RunUnlocked}, states)
	cancel(interrupted{syscall.SIGINT})
	r := testkit.Got(t, done, "it ends")
	require.Equal(t, 130, r.code)
	require.Contains(t, r.err, "ended by a signal: interrupt")
	f.golden("jobs-watch")
}

// A change that was made is not reported as if it had failed, and a pause names the one that it replaces.
func TestChangesAreReported(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testkit.Context(t)
	l, err := schedlock.New(f.session("web-7"), nil)
	require.NoError(t, err)
	_, err = l.Do(ctx, "invoices", nothing, schedlock.Tick(tick(0)))
	require.NoError(t, err)
	require.Empty(t, f.run("jobs", "pause", "invoices", "-N", "test", "--reason", "first").err)
	again := f.run("jobs", "pause", "invoices", "-N", "test", "--reason", "second")
	require.Zero(t, again.code)
	require.Regexp(t, `^invoices was paused before, by etcdkit jobs pause by .*: first\. This pause takes its place`, strings.Replace(again.err, "takes the place of that one", "takes its place", 1))
	f.crowd("charge")
	for args, want := range map[string]string{
		"jobs resume invoices":       "the change was made",
		"limit charge 7":             "the limit was changed",
		"limit rate/mail 7 --create": "the limit was changed",
	} {
		var errs bytes.Buffer
		line := append(strings.Fields(args), "-N", "test", "--endpoints", strings.Join(f.etcd.Endpoints(), ","), "--prefix", f.prefix)
		require.Equal(t, exitFailed, execute(ctx, line, Streams{In: strings.NewReader(""), Out: full{}, Err: &errs}), args)
		require.Contains(t, errs.String(), want)
	}
	st, err := l.Status(ctx, "invoices")
	require.NoError(t, err)
	require.Nil(t, st.Paused)
}
