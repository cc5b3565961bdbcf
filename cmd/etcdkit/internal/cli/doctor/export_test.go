package doctor

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
	"github.com/etcdkit/etcdkit/internal/doctor"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Examination is one whose clock and bounds a test chooses.
type Examination = examination

// NewExamination returns one that takes old revisions for too many, by the clock now.
func NewExamination(c *verb.Call, client *clientv3.Client, old int64, now func() time.Time) *Examination {
	return &examination{call: c, client: client, old: old, now: now}
}

// Compaction is the check of that name.
func (d *examination) Compaction(ctx context.Context) []doctor.Finding { return d.compaction(ctx) }

// Job is the check of one job.
func (d *examination) Job(ctx context.Context, l *schedlock.Locker, name string) ([]doctor.Finding, error) {
	return d.job(ctx, l, name)
}
