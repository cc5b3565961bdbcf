package members

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// etcd answers a question for the progress only if the first revision of the watch has come: a question before would
// be late, and have a member that answers cut off.
func TestWhichWatchesAreAsked(t *testing.T) {
	t.Parallel()
	header := func(revision int64) *etcdserverpb.ResponseHeader {
		return &etcdserverpb.ResponseHeader{Revision: revision}
	}
	for name, tt := range map[string]struct {
		start int64 // of the request; the answer is at revision 10
		known int64 // another answer's revision
		then  *etcdserverpb.WatchResponse
		want  bool
	}{
		"M13: nothing has happened since":             {0, 10, nil, false},
		"M13: another answer shows that it has":       {0, 11, nil, true},
		"M16: an event of its own shows it":           {0, 10, &etcdserverpb.WatchResponse{Header: header(11), Events: []*mvccpb.Event{{}}}, true},
		"M16: it begins with what was there":          {10, 10, nil, true},
		"M16: it begins with what is to come":         {11, 10, nil, false},
		"M16: it begins with what is to come, by now": {11, 11, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bare(t, "")
				ctx, c := s.begin(t.Context(), true)
				w := &watches{stream: s.hold(ctx, c), pause: silent}
				w.begins(&etcdserverpb.WatchCreateRequest{StartRevision: tt.start})
				w.asks()
				w.took(&etcdserverpb.WatchResponse{Header: header(10), Created: true})
				s.saw(header(tt.known))
				if tt.then != nil {
					w.took(tt.then)
				}
				require.False(t, w.wants(time.Now(), s.silence.revision.Load()), "it has just brought something")
				time.Sleep(silent)
				require.Equal(t, tt.want, w.wants(time.Now(), s.silence.revision.Load()))
				require.ErrorIs(t, w.ends(t.Context().Err()), nil)
			})
		})
	}
}
