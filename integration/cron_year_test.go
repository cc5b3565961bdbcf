package integration

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the zones are the same on all machines

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/crons"
)

// Why the plan of a library differs from that of cronie: the rows of the table in internal/proof/crons/README.md.
const (
	refusedLine = "a line with 7 as the weekday"
	eitherDay   = "a line with `*/2` as the day, and a weekday"
	leftOut     = "a time that the clock leaves out"
	foreignDay  = "a weekday, on the day without a midnight: fires although it does not fit"
	lostDay     = "a weekday, on the day without a midnight: left out although it fits"
	halfAnHour  = "a time in the week after a change by half an hour"
	again       = "a time that comes twice: fires again"
	onceOnly    = "a time that comes twice, of a line whose minute or hour begins with *: left out the second time"
)

// reasonOf names why a library has a fire time that cronie has not (extra), or lacks one. It is "" if there is no reason.
func reasonOf(w crons.Window, at time.Time, loc *time.Location, extra bool) string {
	shown := w.Change.In(loc)
	noMidnight := w.By > 0 && shown.Add(-w.By).Format("15:04") == "23:00" && shown.Format("15:04") == "01:00"
	onTheDay := noMidnight && at.In(loc).YearDay() == shown.YearDay()
	switch {
	case extra && w.Repeated(at):
		return again
	case extra && onTheDay:
		return foreignDay
	case extra:
		return ""
	case w.By > 0 && at.Equal(w.Change):
		return leftOut
	case w.Repeated(at):
		return onceOnly
	case w.By.Abs() == 30*time.Minute:
		return halfAnHour
	case onTheDay:
		return lostDay
	}
	return ""
}

// library is one whose plans are compared.
type library struct {
	name string
	year func(line string, on *schedulers, like crons.Plan, windows []crons.Window) (crons.Plan, error)
}

var libraries = []library{{"robfig/cron", robfigYear}, {"gocron", gocronYear}}

// most is how many fire times of a line are asked for beside those around the changes of the clock, in zones that have these.
var most = map[string]int{"robfig/cron": 30_000, "gocron": 12 * 366}

func robfigYear(line string, on *schedulers, like crons.Plan, windows []crons.Window) (crons.Plan, error) {
	s, err := cron.ParseStandard(line)
	if err != nil {
		return crons.Plan{}, err
	}
	return year(like, windows, most["robfig/cron"], func(from, to time.Time) ([]time.Time, error) {
		return robfigFires(s, on.loc, from, to), nil
	})
}

// gocronYear asks gocron's scheduler, at a clock of the test's.
func gocronYear(line string, on *schedulers, like crons.Plan, windows []crons.Window) (crons.Plan, error) {
	return year(like, windows, most["gocron"], func(from, to time.Time) ([]time.Time, error) {
		return on.fires(line, from, to)
	})
}

// year returns the plan of a library: the whole year, or what is around the changes of the clock of a line that fires often.
func year(like crons.Plan, windows []crons.Window, most int, fires func(from, to time.Time) ([]time.Time, error)) (p crons.Plan, err error) {
	if len(windows) == 0 || like.Others < most {
		all, err := fires(crons.Begin, crons.End)
		return crons.NewPlan(like.Zone, like.Line, windows, all), err
	}
	p = crons.Plan{Zone: like.Zone, Line: like.Line, Others: like.Others, Digest: like.Digest}
	for _, w := range windows {
		all, err := fires(w.From, w.To)
		if err != nil {
			return p, err
		}
		p.Around = append(p.Around, all)
	}
	return p, nil
}

// robfigFires returns the fire times of a schedule from one instant to before another.
func robfigFires(s cron.Schedule, loc *time.Location, from, to time.Time) (all []time.Time) {
	for at := s.Next(from.Add(-time.Second).In(loc)); !at.IsZero() && at.Before(to); at = s.Next(at) {
		all = append(all, at)
	}
	return all
}

// schedulers are gocron's, in a zone, one for each clock that stands: a Shutdown of each line's own would cost more than all else.
type schedulers struct {
	loc *time.Location
	all map[time.Time]gocron.Scheduler
}

func newSchedulers(t *testing.T, loc *time.Location) *schedulers {
	t.Helper()
	s := &schedulers{loc, map[time.Time]gocron.Scheduler{}}
	t.Cleanup(func() {
		for _, one := range s.all {
			require.NoError(t, one.Shutdown())
		}
	})
	return s
}

// at returns the scheduler whose clock is a second before an instant.
func (s *schedulers) at(from time.Time) (one gocron.Scheduler, err error) {
	if one = s.all[from]; one == nil {
		if one, err = gocron.NewScheduler(gocron.WithClock(clockwork.NewFakeClockAt(from.Add(-time.Second))), gocron.WithLocation(s.loc)); err != nil {
			return nil, err
		}
		one.Start()
		s.all[from] = one
	}
	return one, nil
}

// fires returns when gocron runs a job from one instant to before another.
func (s *schedulers) fires(line string, from, to time.Time) ([]time.Time, error) {
	one, err := s.at(from)
	if err != nil {
		return nil, err
	}
	job, err := one.NewJob(gocron.CronJob(line, false), gocron.NewTask(func() {}))
	if err != nil {
		return nil, err
	}
	for n := 100; ; n *= 2 {
		all, err := job.NextRuns(n)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, func(at time.Time) bool { return !at.Before(to) }); i >= 0 {
			return all[:i], nil
		}
	}
}

// compare returns for each reason how many fire times of a library differ from a plan; and those that differ without one.
func compare(l library, want crons.Plan, windows []crons.Window, on *schedulers) (n map[string]int, unknown []string) {
	n = map[string]int{}
	got, err := l.year(want.Line, on, want, windows)
	fields := strings.Fields(want.Line)
	switch {
	case err != nil && strings.HasSuffix(want.Line, "7"):
		n[refusedLine]++
	case err != nil:
		unknown = append(unknown, err.Error())
	case len(fields) == 5 && strings.HasPrefix(fields[2], "*/") && fields[4] != "*":
		if got.Others > want.Others {
			n[eitherDay]++
		}
	case got.Others != want.Others || got.Digest != want.Digest:
		unknown = append(unknown, fmt.Sprintf("%d fire times not around a change of the clock (%s), and not %d (%s)", got.Others, got.Digest, want.Others, want.Digest))
	default:
		for i, w := range windows {
			for extra, all := range map[bool][]time.Time{false: crons.Without(want.Around[i], got.Around[i]), true: crons.Without(got.Around[i], want.Around[i])} {
				for _, at := range all {
					if reason := reasonOf(w, at, on.loc, extra); reason != "" {
						n[reason]++
					} else {
						unknown = append(unknown, fmt.Sprintf("%v (not by cronie: %v)", at.In(on.loc), extra))
					}
				}
			}
		}
	}
	return n, unknown
}

// K46: a year of fire times of thirty public crontab lines in sixteen zones, by robfig/cron and gocron, is the plan of cronie
// 1.7.2, with the differences that the table in internal/proof/crons/README.md counts. Lines that fire often are compared for the whole year
// in zones without changes of the clock, and elsewhere around these. -short compares two of the zones, without the counts.
func TestYearOfTheLibraries(t *testing.T) {
	t.Parallel()
	zones := crons.Zones
	if testing.Short() {
		zones = []string{"Australia/Lord_Howe", "Asia/Tehran"}
	}
	var mu sync.Mutex
	counts := map[string]int{}
	t.Run("zones", func(t *testing.T) {
		for _, name := range zones {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				loc, err := time.LoadLocation(name)
				require.NoError(t, err)
				windows := crons.Windows(loc)
				plans, err := crons.Plans(name, windows)
				require.NoError(t, err)
				require.Len(t, plans, 30)
				on := newSchedulers(t, loc)
				for _, want := range plans {
					for _, l := range libraries {
						n, unknown := compare(l, want, windows, on)
						require.Empty(t, unknown, "%s: %s", l.name, want.Line)
						mu.Lock()
						for reason, n := range n {
							counts[reason+" | "+l.name] += n
						}
						mu.Unlock()
					}
				}
			})
		}
	})
	if testing.Short() || t.Failed() {
		return
	}
	page, err := os.ReadFile("../internal/proof/crons/README.md")
	require.NoError(t, err)
	for _, reason := range []string{refusedLine, eitherDay, leftOut, foreignDay, lostDay, halfAnHour, again, onceOnly} {
		row := fmt.Sprintf("| %s | %d | %d |", reason, counts[reason+" | robfig/cron"], counts[reason+" | gocron"])
		require.True(t, strings.Contains(string(page), row), "internal/proof/crons/README.md has no row %s", row)
	}
}
