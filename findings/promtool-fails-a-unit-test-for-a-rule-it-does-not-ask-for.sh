#!/usr/bin/env bash
# Guess: a unit test of promtool fails for what it asks: its alert_rule_test names an alert, its promql_expr_test an expression.
#   Another rule of the same file that cannot be evaluated on the test's series is left out, as in a server, where such a rule
#   fails by itself, with its own health, and the others of its group go on.
# Really: each rule of each loaded file is evaluated at each step of each test, and the first error of any fails that test, also
#   if what it asks is as expected. So series that are right for one rule (two with the same labels but one, of a metric that
#   another rule joins by labels) break a test of a rule that never reads the join.
# Versions: promtool 2.42.0 (Debian 2.42.0+ds-5+deb12u1, amd64)
# Source: cmd/promtool/unittest.go, testGroup.test: the rules' Eval, and LastError of each rule after it.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
curl -fsSLo prometheus.deb http://deb.debian.org/debian/pool/main/p/prometheus/prometheus_2.42.0%2bds-5%2bdeb12u1_amd64.deb
echo '81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55  prometheus.deb' | sha256sum -c --quiet
dpkg-deb -x prometheus.deb .
cat > rules.yaml <<'R'
groups:
  - {name: asked, rules: [{alert: Down, expr: up == 0}]}
  - {name: another, rules: [{alert: Joined, expr: up * on (job) group_left (version) build == 0}]}
R
testing() { # name of the file, value of build's second series
	cat > "$1" <<T
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="api"}', values: 0 0 0}
      - {series: 'build{job="api",version="1"}', values: 1 1 1}
      - {series: 'build{job="api",version="2"}', values: $2 $2 $2}
    alert_rule_test:
      - {alertname: Down, eval_time: 2m, exp_alerts: [{exp_labels: {job: api}}]}
T
}
testing one.yaml _
testing both.yaml 1
usr/bin/promtool --version 2>&1 | head -1
run() { usr/bin/promtool test rules "$1" > "$1.out" 2>&1 && echo passes || echo fails; }
one=$(run one.yaml) both=$(run both.yaml)
echo "the alert Down, beside one series of build:   the test $one"
echo "the same alert, beside two of them:           the test $both: $(grep -oE 'rule: Joined.*(many-to-many|duplicate)[a-z ]*' both.yaml.out | head -1)"
if [[ $one != passes || $both != fails ]] || ! grep -q 'rule: Joined' both.yaml.out; then cat ./*.out; echo CHANGED; exit 1; fi
