package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/etcdkit/etcdkit/concurrency"
)

// environment is that of the command. A name appears once, so a nested run sees its own values.
func (x execution) environment(a *app, p *concurrency.Permit) []string {
	guard := p.Guard()
	own := []string{
		"ETCDKIT_KIND=" + string(x.kind), "ETCDKIT_NAME=" + x.name, "ETCDKIT_NAMESPACE=" + a.etcd.namespace, "ETCDKIT_PREFIX=" + a.etcd.prefix,
		fmt.Sprintf("ETCDKIT_TOKEN=%d", p.Token()), "ETCDKIT_GUARD_KEY=" + string(guard.KeyBytes()),
		fmt.Sprintf("ETCDKIT_GUARD_MOD_REVISION=%d", p.Token()), // the guard compares with it
	}
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
