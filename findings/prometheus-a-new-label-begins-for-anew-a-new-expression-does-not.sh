#!/usr/bin/env bash
# Guess: when a rule's expression is changed, its `for` begins anew with the next reload, since it is another condition. A label,
#   such as another severity, or another name of its group leaves an alert alone that has been pending for hours or fires.
# Really: the reverse. A reload copies what is active from the rule of the same group (file and name) with the same name and the
#   same labels of the rule, in their order in the file. With another expression an alert that is pending goes on, and fires
#   after the rest of `for`, as if the new condition had held as long. With one more label, or in a group of another name, it
#   begins anew: an alert with `for: 1d` is silent for a day, and one that fires is pending again.
# Versions: prometheus 2.42.0 (Debian 2.42.0+ds-5+deb12u1, amd64)
# Source: rules/group.go (rules/manager.go in 2.42), Group.CopyState and nameAndLabels.
set -euo pipefail
d=$(mktemp -d); pid=; trap '[[ -z $pid ]] || kill $pid; wait; rm -rf "$d"' EXIT; cd "$d"
curl -fsSLo prometheus.deb http://deb.debian.org/debian/pool/main/p/prometheus/prometheus_2.42.0%2bds-5%2bdeb12u1_amd64.deb
echo '81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55  prometheus.deb' | sha256sum -c --quiet
dpkg-deb -x prometheus.deb .
rules() { # group of the third rule, expression of the first, label of the second and the fourth
	cat > rules.yaml <<R
groups:
  - name: all
    rules:
      - {alert: Expression, expr: $2, for: 20s}
      - {alert: Label, expr: vector(1), for: 20s, labels: {severity: $3}}
      - {alert: Fires, expr: vector(1), for: 5s, labels: {severity: $3}}
  - name: $1
    rules:
      - {alert: Group, expr: vector(1), for: 20s}
R
}
rules first 'vector(1)' warning
echo '{global: {evaluation_interval: 1s}, rule_files: [rules.yaml]}' > prometheus.yaml
port=$((20000 + RANDOM % 10000))
usr/bin/prometheus --config.file=prometheus.yaml --storage.tsdb.path=data --web.listen-address=127.0.0.1:$port 2>log &
pid=$!
usr/bin/prometheus --version 2>&1 | head -1
states() { # name:state of each alert, by name
	curl -fs "127.0.0.1:$port/api/v1/alerts" | grep -oE '"alertname":"[A-Za-z]+"|"state":"[a-z]+"' | cut -d'"' -f4 | paste -sd' ' | sed -E 's/([A-Z][a-z]+) ([a-z]+)/\1:\2/g' | tr ' ' '\n' | sort | paste -sd' '
}
await() { # waits for a pattern of the states
	for _ in {1..300}; do
		case "$(states || true)" in $1) return ;; esac
		sleep 0.2
	done
	echo "not seen: $1"; echo CHANGED; exit 1
}
await '*Fires:firing*'
before=$(states)
rules second 'vector(2) > 1' critical
kill -HUP $pid
begun=$SECONDS
await '*Fires:pending*'
after=$(states)
await '*Expression:firing*'
echo "before the reload:              $before"
echo "after it:                       $after"
echo "$((SECONDS - begun)) s later, the 20 s are over:  $(states)"
if [[ $before != "Expression:pending Fires:firing Group:pending Label:pending" || $after != "Expression:pending Fires:pending Group:pending Label:pending" ||
	$(states) != "Expression:firing Fires:firing Group:pending Label:pending" ]]; then echo CHANGED; exit 1; fi
