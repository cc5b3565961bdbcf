package console

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// finding is one line of the doctor's page.
type finding struct {
	Check, Text, Advice string
	Bad                 bool
}

// findings are what the doctor has found.
type findings []finding

// urgent has an operator see soon that what was wrong is over.
func (all findings) urgent() bool {
	return slices.ContainsFunc(all, func(f finding) bool { return f.Bad })
}

func readDoctor(q request) (any, quality, error) {
	all, st, err := read(q, "doctor", q.console.examine)
	return all, st, err
}

const (
	slow     = 500 * time.Millisecond // a read that takes longer takes too long
	askBound = 2 * time.Second        // of each question that the doctor asks
)

// examine looks at what this session can know. One member that hangs keeps nothing from the others.
func (c *console) examine(ctx context.Context) (all findings, _ error) {
	client := c.inner.Etcd().Client
	endpoints := client.Endpoints()
	members := make([]finding, len(endpoints))
	var asked sync.WaitGroup
	for i, endpoint := range endpoints {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askBound)
			defer cancel()
			st, err := client.Status(ctx, endpoint)
			members[i] = member(endpoint, st, err)
		})
	}
	bounded, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	began := time.Now()
	_, err := c.inner.Read(bounded, c.inner.Space().Root(), clientv3.WithCountOnly())
	took := time.Since(began).Round(100 * time.Microsecond)
	switch {
	case commit.Denied(err):
		all = append(all, finding{"permission", err.Error(), "etcd answers, and does not let this user read the namespace: it needs a role, see docs/operations.md, roles.", true})
	case err != nil:
		all = append(all, finding{"majority", err.Error(), "No majority of etcd answers: nothing can be acquired.", true})
	case took > slow:
		all = append(all, finding{"majority", fmt.Sprintf("a read took %v", took), "Every acquire takes at least that long.", true})
	default:
		all = append(all, finding{Check: "majority", Text: "etcd answers"})
	}
	alarms, err := client.AlarmList(bounded)
	asked.Wait()
	all = append(all, members...)
	if err == nil && len(alarms.Alarms) > 0 {
		all = append(all, finding{"alarms", fmt.Sprint(alarms.Alarms), "With NOSPACE nothing new is acquired; permits are kept and released.", true})
	}
	switch {
	case c.inner.Leaseless():
		all = append(all, finding{Check: "session", Text: "this console only reads, and is no session"})
	case c.sess.Lease() == 0:
		all = append(all, finding{"session", "this console's session has no lease at the moment", "It takes a new one as soon as etcd grants it.", true})
	default:
		all = append(all, finding{Check: "session", Text: "this console's session is alive"})
	}
	return all, nil
}

// member is the finding about a member of etcd.
func member(endpoint string, st *clientv3.StatusResponse, err error) finding {
	if err != nil {
		return finding{"endpoint", fmt.Sprintf("%s: %v", endpoint, err), "This member does not answer; a majority is enough.", true}
	}
	f := finding{Check: "endpoint", Text: fmt.Sprintf("%s: etcd %s", endpoint, st.Version)}
	if len(st.Errors) > 0 {
		f.Text, f.Advice, f.Bad = fmt.Sprintf("%s: %v", f.Text, st.Errors), "See docs/operations.md, etcd's quota.", true
	}
	return f
}
