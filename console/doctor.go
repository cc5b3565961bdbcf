package console

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// finding is one line of the doctor's page.
type finding struct {
	Check, Text, Advice string
	Bad                 bool
}

func readDoctor(q request) (any, quality, error) {
	all, st, err := read(q, "doctor", q.console.examine)
	return all, st, err
}

// slow is a read that takes too long.
const slow = 500 * time.Millisecond

// examine looks at what this session can know.
func (c *console) examine(ctx context.Context) (all []finding, err error) {
	began := time.Now()
	_, err = c.inner.Read(ctx, c.inner.Space().Root(), clientv3.WithCountOnly())
	took := time.Since(began).Round(100 * time.Microsecond)
	switch {
	case err != nil:
		all = append(all, finding{"majority", err.Error(), "No majority of etcd answers, or this user may not read: nothing can be acquired.", true})
	case took > slow:
		all = append(all, finding{"majority", fmt.Sprintf("a read took %v", took), "Every acquire takes at least that long.", true})
	default:
		all = append(all, finding{Check: "majority", Text: "etcd answers"})
	}
	client := c.inner.Client()
	for _, endpoint := range client.Endpoints() {
		st, err := client.Status(ctx, endpoint)
		if err != nil {
			all = append(all, finding{"endpoint", fmt.Sprintf("%s: %v", endpoint, err), "This member does not answer; a majority is enough.", true})
			continue
		}
		f := finding{Check: "endpoint", Text: fmt.Sprintf("%s: etcd %s", endpoint, st.Version)}
		if len(st.Errors) > 0 {
			f.Text, f.Advice, f.Bad = fmt.Sprintf("%s: %v", f.Text, st.Errors), "See docs/operations.md, etcd's quota.", true
		}
		all = append(all, f)
	}
	if alarms, err := client.AlarmList(ctx); err == nil && len(alarms.Alarms) > 0 {
		all = append(all, finding{"alarms", fmt.Sprint(alarms.Alarms), "With NOSPACE nothing new is acquired; permits are kept and released.", true})
	}
	switch {
	case c.inner.Reads():
		all = append(all, finding{Check: "session", Text: "this console only reads, and is no session"})
	case c.sess.Lease() == 0:
		all = append(all, finding{"session", "this console's session has no lease at the moment", "It takes a new one as soon as etcd grants it.", true})
	default:
		all = append(all, finding{Check: "session", Text: "this console's session is alive"})
	}
	return all, nil
}
