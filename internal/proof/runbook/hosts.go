//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// hosts are the machines of the page: folders below root, reached by commands named ssh and scp, with
// addresses of the loopback network in place of 10.0.0.x.
type hosts struct {
	root    string // a folder for each host, and bin for the operator's commands
	network string // the first three bytes of the addresses
}

// newHosts makes the hosts, with etcd 3.6 as the installed one. tools has etcdctl, etcdutl and etcdkit.
func newHosts(root string, servers map[string]string, tools []string) (*hosts, error) {
	h := &hosts{root: root, network: fmt.Sprintf("127.%d.%d.", 1+rand.N(250), 1+rand.N(250))}
	for _, host := range []string{"m1", "m2", "m3", "app"} {
		for _, folder := range []string{"etc/etcd", "etc/payments", "var/lib", "usr/local/bin", "tmp"} {
			if err := os.MkdirAll(filepath.Join(root, host, folder), 0o700); err != nil {
				return nil, err
			}
		}
		for version, binary := range servers {
			folder := filepath.Join(root, host, "tmp", "etcd-"+version)
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return nil, err
			}
			if err := os.Symlink(binary, filepath.Join(folder, "etcd")); err != nil {
				return nil, err
			}
		}
		if err := os.Symlink(servers[oldLine], filepath.Join(root, host, "usr/local/bin/etcd")); err != nil {
			return nil, err
		}
	}
	for _, folder := range []string{"bin", "onhost"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o700); err != nil {
			return nil, err
		}
	}
	for _, tool := range tools {
		for _, folder := range []string{"bin", "onhost"} {
			if err := os.Symlink(tool, filepath.Join(root, folder, filepath.Base(tool))); err != nil {
				return nil, err
			}
		}
	}
	for name, text := range map[string]string{"bin/ssh": ssh, "bin/scp": scp, "onhost/sudo": sudo, "onhost/systemctl": systemctl} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("#!/usr/bin/env bash\nset -euo pipefail\n"+text), 0o700); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// path returns where a file of a host is.
func (h *hosts) path(host, file string) string { return filepath.Join(h.root, host, file) }

// here returns a text of the page with the addresses of this run.
func (h *hosts) here(text string) string { return strings.ReplaceAll(text, "10.0.0.", h.network) }

// environment is that of the page's commands.
func (h *hosts) environment() []string {
	return append(os.Environ(), "ROOT="+h.root, "PATH="+filepath.Join(h.root, "bin")+":"+os.Getenv("PATH"))
}

// The commands of the hosts. A path of a host is one below its folder.
const (
	ssh = `host=$1; shift
command=$(sed -E "s#(^|[ '\"=])/(etc|var|usr|tmp)/#\1$ROOT/$host/\2/#g" <<<"$*")
cd "$ROOT/$host"
HOST=$host PATH="$ROOT/onhost:$PATH" exec bash -euo pipefail -c "$command" </dev/null
`
	scp  = `exec cp "$1" "$ROOT/${2%%:*}${2#*:}"` + "\n"
	sudo = `exec "$@"` + "\n"

	// systemctl knows two units. A start of etcd waits until it serves, as with systemd's notification.
	systemctl = `verb=$1; shift; wait=yes
[[ $1 != --no-block ]] || { wait=; shift; }
unit=$1; here=$ROOT/$HOST
if [[ $unit == payments ]]; then
	echo "$verb" >&9; read -r answer <&9; [[ $answer == ok ]]; exit
fi
if [[ $verb == stop || $verb == restart ]]; then
	pid=$(cat "$here/pid"); kill -TERM "$pid"
	while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
fi
if [[ $verb == start || $verb == restart ]]; then
	sed -E "s# /(etc|var)/# $here/\1/#g; s#: /(etc|var)/#: $here/\1/#g" "$here/etc/etcd/etcd.yml" >"$here/etcd.yml"
	setsid "$here/usr/local/bin/etcd" --config-file="$here/etcd.yml" >"$here/log" 2>&1 9>&- </dev/null &
	pid=$!; echo "$pid" >"$here/pid"
	[[ -n $wait ]] || exit 0
	until grep -q "serving client traffic securely" "$here/log"; do
		kill -0 "$pid" || { tail -n 5 "$here/log" >&2; exit 1; }
		sleep 0.05
	done
fi
`
)
