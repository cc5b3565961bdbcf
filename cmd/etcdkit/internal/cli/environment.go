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

// notEmpty are the flags that are as good as absent if they are empty: a script whose variable is not set would talk to
// another cluster, without encryption, or about another namespace.
var notEmpty = []string{"endpoints", "cacert", "cert", "key", "user", "namespace"}

// discovery are the variables by which etcdctl finds its endpoints in DNS, which this command does not.
var discovery = []string{"ETCDCTL_DISCOVERY_SRV", "ETCDCTL_DISCOVERY_SRV_NAME"}

// checkConnection refuses what would select another cluster, or another protection of it, than its user means.
func checkConnection(flags *pflag.FlagSet) error {
	for _, name := range notEmpty {
		if f := flags.Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			return fmt.Errorf("--%s is empty, as of a variable that is not set: leave it out if that is meant", name)
		}
	}
	for _, name := range discovery {
		if os.Getenv(name) != "" && !flags.Changed("endpoints") {
			return fmt.Errorf("environment variable %s is set, and etcdkit does not look for endpoints in DNS: give --endpoints", name)
		}
	}
	return nil
}

// trimEndpoints removes the spaces around each endpoint, as etcdctl does: "a:2379, b:2379" is two.
func (c *connection) trimEndpoints() {
	for i, at := range c.spec.Endpoints {
		c.spec.Endpoints[i] = strings.TrimSpace(at)
	}
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
