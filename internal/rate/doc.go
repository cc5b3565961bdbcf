// Package rate is the pure core of a rate limiter for a fleet: how a rate is divided into shares,
// which tokens the shares of one process have at a time, and how many shares the process asks for
// and returns. It does no I/O and reads no clock.
//
// A share is one permit of a semaphore whose limit is the number of shares. Which process holds a
// share is decided by the order of etcd's revisions; clocks decide only how fast the tokens of a
// share accrue, and when a process no longer trusts that it holds one. So at every moment the
// shares that are held add up to the rate and to the burst at most, and so do their tokens: in a
// window of any length T the fleet takes at most PerSecond × T + Burst tokens.
//
// The rules that this rests on:
//
//   - a share that is gained adds no token, and counts when a read of the rate shows its request;
//   - the capacities of all shares add up to at most the burst, and each is at least one token;
//   - tokens above the capacity of the shares that are left are void before a share is returned;
//   - each take checks that the shares are still trusted, and voids all tokens if they are not;
//   - tokens accrue at 0.999 of the rate, so that a clock that is up to 1,000 ppm fast does no harm.
package rate
