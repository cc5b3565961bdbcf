package main

import "os"

// A referee that cannot fail proves nothing. Tests set this environment variable to make the
// program break its own rules, which the referee must detect:
//
//	overadmit  the workers' semaphore admits ten times the limit
//	unchecked  the workers do not check their permit before a step
const sabotageEnv = "FLEET_SABOTAGE"

func sabotage() string { return os.Getenv(sabotageEnv) }

// admits returns the limit of the semaphore in etcd.
func (c config) admits() int {
	if c.sabotage == "overadmit" {
		return 10 * c.limit
	}
	return c.limit
}
