package cli

import (
	"fmt"
	"os"
	"strings"
)

// environment is that of the command, with the key and the token of the guard and more variables. A name appears once, so
// a nested run sees its own values.
func (x execution) environment(a *app, key []byte, token int64, more ...string) []string {
	own := append([]string{
		"ETCDKIT_KIND=" + string(x.kind), "ETCDKIT_NAME=" + x.name, "ETCDKIT_NAMESPACE=" + a.etcd.namespace, "ETCDKIT_PREFIX=" + a.etcd.prefix,
		fmt.Sprintf("ETCDKIT_TOKEN=%d", token), "ETCDKIT_GUARD_KEY=" + string(key),
		fmt.Sprintf("ETCDKIT_GUARD_MOD_REVISION=%d", token), // the guard compares with it
	}, more...)
	var all []string
	for _, inherited := range os.Environ() {
		name, _, _ := strings.Cut(inherited, "=")
		if !contains(own, name+"=") {
			all = append(all, inherited)
		}
	}
	return append(all, own...)
}

// contains reports whether a variable with that prefix is there.
func contains(env []string, prefix string) bool {
	for _, v := range env {
		if strings.HasPrefix(v, prefix) {
			return true
		}
	}
	return false
}
