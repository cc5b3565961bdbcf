package main

import "os"

// A referee that cannot fail proves nothing. With this variable in its
// environment, which only the tests set, the program breaks the rules that it is
// about, and has to notice:
//
//	crowd  the workers' semaphore admits ten times the limit
//	deaf   a worker does not look at its permit before a step
const sabotageEnv = "FLEET_SABOTAGE"

func sabotage() string { return os.Getenv(sabotageEnv) }

// admits is the limit that is told to etcd.
func (c config) admits() int {
	if c.sabotage == "crowd" {
		return 10 * c.limit
	}
	return c.limit
}
