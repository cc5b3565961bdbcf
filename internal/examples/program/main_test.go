package program_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/examples/cluster"
	"github.com/etcdkit/etcdkit/internal/examples/program"
	"github.com/etcdkit/etcdkit/internal/examples/progtest"
)

// main is a program that opens a session on each of two clients.
func main() {
	program.MainOn("secured", func(ctx context.Context, etcd cluster.Etcd, first *clientv3.Client) error {
		second, err := etcd.Dial()
		if err != nil {
			return err
		}
		defer second.Close()
		for _, client := range []*clientv3.Client{first, second} {
			sess, err := concurrency.NewSession(ctx, client, "secured", nil)
			if err != nil {
				return err
			}
			if err := sess.Close(ctx); err != nil {
				return err
			}
		}
		fmt.Println("done")
		return nil
	})
}

func TestMain(m *testing.M) { progtest.Main(m, main) }

// A program takes TLS, a client certificate and the user as etcdctl does, in flags and in variables. Without one of
// them it fails.
func TestSecured(t *testing.T) {
	t.Parallel()
	etcd := progtest.Etcd(t)
	var variables []string // ETCDCTL_ENDPOINTS=..., and so on
	for i, flags := 0, etcd.Flags(); i < len(flags); i += 2 {
		variables = append(variables, "ETCDCTL_"+strings.ToUpper(flags[i][1:])+"="+flags[i+1])
	}
	at := func(flag string) string { return etcd.Flags()[slices.Index(etcd.Flags(), flag)+1] }
	for name, tt := range map[string]struct {
		args, env []string
		status    int
		says      string
	}{
		"flags":          {args: etcd.Flags(), says: "etcd at https://127.0.0.1:"},
		"variables":      {env: variables, says: "etcd at https://127.0.0.1:"},
		"wrong password": {args: etcd.Flags("-user", "example:wrong"), status: 1, says: "authentication failed"},
		"flag first":     {args: []string{"-user", "example:wrong"}, env: variables, status: 1, says: "authentication failed"},
		"no certificate": {args: []string{"-endpoints", at("-endpoints"), "-cacert", at("-cacert"), "-user", at("-user")}, status: 1, says: "deadline exceeded"},
		"half of one":    {args: []string{"-endpoints", at("-endpoints"), "-cacert", at("-cacert"), "-cert", at("-cert")}, status: 2, says: "-key"},
		"no password":    {args: etcd.Flags("-user", "example"), status: 2, says: "ETCDCTL_PASSWORD"},
		"empty user":     {args: etcd.Flags("-user", ""), status: 2, says: "-user is empty"},
		"no such file":   {args: etcd.Flags("-cacert", "nowhere.pem"), status: 2, says: "nowhere.pem"},
		"wrong variable": {env: []string{"ETCDCTL_INSECURE_TRANSPORT=perhaps"}, status: 2, says: `ETCDCTL_INSECURE_TRANSPORT="perhaps"`},
		"an argument":    {args: []string{"more"}, status: 2, says: `unexpected argument "more"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := progtest.New(t, tt.args...)
			p.Env = append(p.Env, tt.env...)
			p.Ends(tt.status, tt.says)
			if done := p.Out.String() == "done\n"; done != (tt.status == 0) {
				t.Errorf("it wrote %q", &p.Out)
			}
		})
	}
}
