package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// ours are the flags that etcdctl does not have.
var ours = map[string]string{"namespace": "ETCDKIT_NAMESPACE", "prefix": "ETCDKIT_PREFIX", "output": "ETCDKIT_OUTPUT"}

// theirs are the flags of etcdctl that this command has, with the same meaning.
var theirs = map[string]bool{
	"endpoints": true, "dial-timeout": true, "command-timeout": true, "keepalive-time": true, "keepalive-timeout": true,
	"cert": true, "key": true, "cacert": true, "insecure-transport": true, "insecure-skip-tls-verify": true,
	"user": true, "password": true,
}

// variable returns the environment variable of a flag, or "".
func variable(flag string) string {
	if theirs[flag] {
		return "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	}
	return ours[flag]
}

// fromEnvironment sets the flags that were not given from their environment variables.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f.Name)
		value, ok := os.LookupEnv(name)
		if err != nil || f.Changed || name == "" || !ok || value == "" {
			return
		}
		if e := flags.Set(f.Name, value); e != nil {
			err = fmt.Errorf("environment variable %s=%q: %w", name, value, e)
		}
	})
	return err
}
