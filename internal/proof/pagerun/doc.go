// Package pagerun has tests alone: what pages show of etcdctl, of curl and of answers over HTTP is typed and sent as it
// is on the page, and compared; go doc is asked what pages send their readers to, and make what it would run. The calls of
// the command etcdkit are run by its own tests, the runbook by make runbook.
package pagerun
