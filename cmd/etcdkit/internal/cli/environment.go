package cli

import (
	"cmp"

	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/internal/etcdflags"
)

// ours are the flags that etcdctl does not have.
var ours = map[string]string{"namespace": "ETCDKIT_NAMESPACE", "prefix": "ETCDKIT_PREFIX", "output": "ETCDKIT_OUTPUT"}

// variable returns the environment variable of a flag, or "".
func variable(flag string) string { return cmp.Or(etcdflags.Variable(flag), ours[flag]) }

// checkConnection refuses what would select another cluster, or another protection of it, than its user means.
func checkConnection(flags *pflag.FlagSet) error {
	return etcdflags.Check(func(name string) (string, bool) {
		f := flags.Lookup(name)
		if f == nil {
			return "", false
		}
		return f.Value.String(), f.Changed
	})
}

// fromEnvironment sets the flags that were not given from their environment variables.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err == nil && !f.Changed {
			err = etcdflags.FromVariable(variable(f.Name), f.Name, flags.Set)
		}
	})
	return err
}
