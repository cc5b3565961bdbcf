package guarded

import (
	"fmt"
	"os"
	"strings"
)

// Environment is that of the command, with the key and the token of the guard and more variables. A name appears once, so
// a nested run sees its own values.
func (x Execution) Environment(key []byte, token int64, more ...string) []string {
	own := append([]string{
		"ETCDKIT_KIND=" + string(x.Kind), "ETCDKIT_NAME=" + x.Name,
		"ETCDKIT_NAMESPACE=" + x.Call.Etcd.Namespace, "ETCDKIT_PREFIX=" + x.Call.Etcd.Prefix,
		fmt.Sprintf("ETCDKIT_TOKEN=%d", token), "ETCDKIT_GUARD_KEY=" + string(key),
		fmt.Sprintf("ETCDKIT_GUARD_MOD_REVISION=%d", token), // the guard compares with it
	}, more...)
	return append(Without(os.Environ(), own), own...)
}

// Without returns the variables of env that others have no value for.
func Without(env, others []string) (all []string) {
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if !has(others, name+"=") {
			all = append(all, v)
		}
	}
	return all
}

// has reports whether a variable with that prefix is there.
func has(env []string, prefix string) bool {
	for _, v := range env {
		if strings.HasPrefix(v, prefix) {
			return true
		}
	}
	return false
}
