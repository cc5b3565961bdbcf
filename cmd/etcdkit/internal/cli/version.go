package cli

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of the command",
		Example: "etcdkit version -o json",
		Args:    arguments(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				schema
				Version string `json:"version"`
				Etcd    string `json:"etcd_client"`
				Go      string `json:"go"`
			}{schemaOf("version"), "unknown", "unknown", runtime.Version()}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = cmp.Or(info.Main.Version, v.Version)
				for _, m := range info.Deps {
					if m.Path == "go.etcd.io/etcd/client/v3" {
						v.Etcd = m.Version
					}
				}
			}
			return a.print(v, func(t *table) {
				t.row("etcdkit", v.Version)
				t.row("etcd client", v.Etcd)
				t.row("Go", v.Go)
			})
		},
	}
}
