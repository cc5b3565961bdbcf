package etcdflags

import (
	"fmt"
	"os"
	"strings"
)

// Names are the flags of etcdctl that a command of ours may have, with the same meaning.
var Names = map[string]bool{
	"endpoints": true, "dial-timeout": true, "command-timeout": true, "keepalive-time": true, "keepalive-timeout": true,
	"cert": true, "key": true, "cacert": true, "insecure-transport": true, "insecure-skip-tls-verify": true,
	"user": true, "password": true,
}

// Variable returns the environment variable of a flag of etcdctl, or "" for another flag.
func Variable(flag string) string {
	if !Names[flag] {
		return ""
	}
	return "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// FromVariable sets a flag that was not given from its environment variable, unless that is empty.
func FromVariable(variable, flag string, set func(flag, value string) error) error {
	value := os.Getenv(variable)
	if variable == "" || value == "" {
		return nil
	}
	if err := set(flag, value); err != nil {
		return fmt.Errorf("environment variable %s=%q: %w", variable, value, err)
	}
	return nil
}

// NotEmpty are the flags that are as good as absent if they are empty: a script whose variable is not set would talk to
// another cluster, without encryption, or about another namespace.
var NotEmpty = []string{"endpoints", "cacert", "cert", "key", "user", "namespace"}

// discovery are the variables by which etcdctl finds its endpoints in DNS, which we do not.
var discovery = []string{"ETCDCTL_DISCOVERY_SRV", "ETCDCTL_DISCOVERY_SRV_NAME"}

// Check refuses what would select another cluster, or another protection of it, than its user means. given
// returns the value of a flag, and whether it was given on the command line.
func Check(given func(flag string) (value string, ok bool)) error {
	for _, name := range NotEmpty {
		if value, ok := given(name); ok && (value == "" || value == "[]") {
			return fmt.Errorf("--%s is empty, as of a variable that is not set: leave it out if that is meant", name)
		}
	}
	for _, name := range discovery {
		if _, ok := given("endpoints"); os.Getenv(name) != "" && !ok {
			return fmt.Errorf("environment variable %s is set, and etcdkit does not look for endpoints in DNS: give --endpoints", name)
		}
	}
	return nil
}
