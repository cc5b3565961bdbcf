package alertday

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/embedtest"
)

func TestMain(m *testing.M) { embedtest.Main(m) }

// every is the time between two samples.
const every = time.Second

// files are the rules.
var files = []string{"../../../docs/observability/alerts.yaml", "../../../docs/observability/fleet_alerts.yaml"}

// day returns how many samples the variable ALERTS_DAY asks for, and skips the test if there is none: a busy machine
// would have alerts of its own.
func day(t *testing.T) (samples int) {
	t.Helper()
	given := os.Getenv("ALERTS_DAY")
	if given == "" {
		t.Skip("it takes minutes: make alerts-day")
	}
	tool(t)
	samples, err := strconv.Atoi(given)
	require.NoError(t, err, "ALERTS_DAY")
	return samples
}

// tool skips a test where promtool is not installed.
func tool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed: make alerts-day says how to get it")
	}
}

// What is recorded is what the rules see: an alert that fires, and one that is pending.
func TestFiring(t *testing.T) {
	t.Parallel()
	tool(t)
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "etcdkit_exporter_up", ConstLabels: prometheus.Labels{"etcdkit_namespace": "pay"}})
	reg := prometheus.NewRegistry()
	reg.MustRegister(up)
	r, from := newRecording(), map[string]prometheus.Gatherer{"exporter": reg}
	for n, want := range []map[bool][]string{
		{false: nil, true: nil}, {false: nil, true: {"EtcdkitExporterDown"}}, {false: {"EtcdkitExporterDown"}, true: {"EtcdkitExporterDown"}},
	} {
		up.Set(float64(min(1, n) ^ 1))
		for range 4 {
			r.sample(t, from)
			if n == 1 {
				break
			}
		}
		for pending, alerts := range want {
			require.Equal(t, alerts, r.firing(t, files[1], pending), "%d, pending %v", n, pending)
		}
	}
}

// A fleet that is healthy and busy has no alert at the end of its day, and none that is pending.
func TestHealthyDay(t *testing.T) {
	samples := day(t)
	f := start(t)
	time.Sleep(2 * every) // the first calls of all primitives
	r := newRecording()
	f.record(r, samples)
	t.Logf("%d series with %d samples", len(r.series), r.samples)
	for _, file := range files {
		require.Empty(t, r.firing(t, file, false), file)
		require.Empty(t, r.firing(t, file, true), "pending in %s", file)
	}
}

// faults are what befalls a fleet, with exactly the alerts that fire half an hour later.
var faults = map[string]struct {
	cause func(*fleet)
	lasts int // samples, if not half an hour
	fires []string
}{
	"etcd is away": {
		cause: func(f *fleet) { require.NoError(f.T, f.Stop(0)) },
		fires: []string{"EtcdkitElectionLeaderless", "EtcdkitExporterDown", "EtcdkitSessionNotRecovered", "EtcdkitUnavailable"},
	},
	"all permits of a semaphore are held": {
		cause: func(f *fleet) {
			for range 3 {
				f.hold(concurrency.NewSemaphore(f.sessions[0], "charge", 3, nil))
			}
		},
		fires: []string{"EtcdkitLimitSaturated", "EtcdkitOldestWait"},
	},
	"a mutex is held": {
		cause: func(f *fleet) {
			mu, err := concurrency.NewMutex(f.sessions[0], "report")
			require.NoError(f.T, err)
			_, err = mu.Lock(f.ctx)
			require.NoError(f.T, err)
		},
		fires: []string{"EtcdkitMutexBlocked"},
	},
	"a semaphore is paused": {
		cause: func(f *fleet) { f.limit(0) },
		fires: []string{"EtcdkitPausedQueue"},
	},
	"no process calls the job": {
		cause: func(f *fleet) { f.jobless.Store(true) },
		fires: []string{"EtcdkitJobNotStarted"},
	},
	"a rate is exceeded": {
		cause: func(f *fleet) {
			mail, err := concurrency.NewRateLimiter(f.sessions[0], "mail", mails, nil)
			require.NoError(f.T, err)
			f.loop(2*time.Millisecond, mail.Allow)
		},
		fires: []string{"EtcdkitRateExceeded"},
	},
	"one client of a limiter asks for too much": {
		cause: func(f *fleet) {
			api, err := concurrency.NewKeyedLimiter(f.sessions[0], "api", 2, &concurrency.KeyedLimiterOptions{Total: 5})
			require.NoError(f.T, err)
			for range 2 {
				f.hold(api.Key("greedy"), nil)
			}
			for range 4 {
				f.loop(time.Millisecond, func() error { _, err := api.Key("greedy").TryAcquire(f.ctx); return err })
			}
		},
		fires: []string{"EtcdkitLimiterRefusals"},
	},
	"another program writes below the prefix": {
		cause: func(f *fleet) {
			_, err := f.Client().Put(f.ctx, f.sessions[0].NamespacePrefix()+"semaphore/charge/other", "")
			require.NoError(f.T, err)
		},
		fires: []string{"EtcdkitForeignKeys"},
	},
	"a hook panics": {
		cause: func(f *fleet) { f.limit(unlucky) },
		lasts: 10,
		fires: []string{"EtcdkitHookPanics"},
	},
	"the exporter has ended": {
		cause: func(f *fleet) { delete(f.from, "exporter") },
		fires: []string{"EtcdkitExporterGone"},
	},
}

// Each fault fires the alerts that its rows on the page name, and no other.
func TestFaults(t *testing.T) {
	day(t)
	for name, c := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t)
			time.Sleep(2 * every)
			r := newRecording()
			f.record(r, 5)
			c.cause(f)
			f.record(r, cmp.Or(c.lasts, 35))
			var fires []string
			for _, file := range files {
				fires = append(fires, r.firing(t, file, false)...)
			}
			slices.Sort(fires)
			require.Equal(t, c.fires, fires)
		})
	}
}

// hold acquires a permit of a semaphore, and keeps it.
func (f *fleet) hold(sem *concurrency.Semaphore, err error) {
	require.NoError(f.T, err)
	_, err = sem.Acquire(f.ctx)
	require.NoError(f.T, err)
}

// limit changes the limit of the semaphore.
func (f *fleet) limit(n int) {
	sem, err := concurrency.NewSemaphore(f.sessions[0], "charge", 3, nil)
	require.NoError(f.T, err)
	require.NoError(f.T, sem.SetLimit(context.Background(), n))
}
