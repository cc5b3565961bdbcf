package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/output"
	"github.com/etcdkit/etcdkit/cmd/etcdkit/internal/cli/verb"
)

func version(c *verb.Call) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the command",
		Example: "etcdkit version -o json",
		Args:    verb.Arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				output.Form
				Version string `json:"version"`
				Etcd    string `json:"etcd_client"`
				Go      string `json:"go"`
			}{output.FormOf("version"), "unknown", "unknown", runtime.Version()}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = cmp.Or(info.Main.Version, v.Version)
				for _, m := range info.Deps {
					if m.Path == "go.etcd.io/etcd/client/v3" {
						v.Etcd = m.Version
					}
				}
			}
			return c.Print(v, func(t *output.Table) {
				t.Row("etcdkit", v.Version)
				t.Row("etcd client", v.Etcd)
				t.Row("Go", v.Go)
			})
		},
	}
}
