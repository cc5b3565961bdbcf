package verb

import (
	"cmp"

	"github.com/spf13/pflag"

	"github.com/etcdkit/etcdkit/internal/etcdflags"
)

// Ours are the flags that etcdctl does not have.
var Ours = map[string]string{"namespace": "ETCDKIT_NAMESPACE", "prefix": "ETCDKIT_PREFIX", "output": "ETCDKIT_OUTPUT"}

// Variable returns the environment variable of a flag, or "".
func Variable(flag string) string { return cmp.Or(etcdflags.Variable(flag), Ours[flag]) }

// CheckConnection returns an error for flags that would select another cluster, or another protection of it, than
// their user means.
func CheckConnection(flags *pflag.FlagSet) error {
	return etcdflags.Check(func(name string) (string, bool) {
		f := flags.Lookup(name)
		if f == nil {
			return "", false
		}
		return f.Value.String(), f.Changed
	})
}

// FromEnvironment sets the flags that were not given from their environment variables. It returns an error for
// the first one whose flag refuses it.
func FromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		if err == nil && !f.Changed {
			err = etcdflags.FromVariable(Variable(f.Name), f.Name, flags.Set)
		}
	})
	return err
}
