package cron

import (
	"io"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/guarded"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/schedlock"
)

// A process that uses a job reports the runs that others have lost, and marks them as reported: no other process reports
// them again. So verbs that use a job say what they report. Those that only operate one report and mark nothing.

// losses returns what says that a run of another process was lost.
func losses(x *guarded.Execution) func(schedlock.Record) {
	return func(r schedlock.Record) {
		x.Say("%s: tick %s: the run by %s, attempt %d, was lost: its process died, was cut off or was paused for too long; what it did "+
			"is not known",
			r.Job, output.Instant(r.Tick), output.OrDash(r.Owner), r.Attempt)
	}
}

// warnings returns a logger that writes warnings, without those that the verb says in its own words.
func warnings(to io.Writer) *zap.Logger {
	return output.Logger(to, zap.WarnLevel).WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return unsaid{c} }))
}

// said is how messages begin that cronRun.report and losses say too.
var said = []string{"a run was lost", "a run failed", "a tick could not be claimed", "a job is refused"}

// unsaid is a core without messages that are said.
type unsaid struct{ zapcore.Core }

func (u unsaid) With(fields []zapcore.Field) zapcore.Core { return unsaid{u.Core.With(fields)} }

func (u unsaid) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	for _, text := range said {
		if strings.HasPrefix(e.Message, text) {
			return to
		}
	}
	return u.Core.Check(e, to)
}
