package main

import (
	"fmt"
	"net"
	"strings"
)

// commands are what to try.
func commands(endpoints []string, addr net.Addr) string {
	return fmt.Sprintf(`serving payments on %[1]v. Send one, and send it again:

  curl -i %[1]v/payments -H 'Idempotency-Key: "payment-1"' -d '{"order":"order-17","cents":100}'

If it is not known whether it was charged (409), see which order it is, and ask the provider:

  export ETCDCTL_ENDPOINTS=%[2]s
  etcdkit requests list -N shop payments --state unknown

If it was charged, record the receipt that the client has not got. REF is in the list:

  echo '{"receipt":"charge 1"}' > receipt.json
  etcdkit requests resolve -N shop payments REF --status 201 --header 'Content-Type: application/json' --body receipt.json

If not, the next request with its key charges. It needs --force while this process lives, since a charge may still
be under way: wait until the provider would have answered.

  etcdkit requests resolve -N shop payments REF --not-done --force
`, addr, strings.Join(endpoints, ","))
}
