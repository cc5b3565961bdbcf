// Package ratelimit is a rate as one session uses it: a loop acquires and returns the shares of the rate (package rate),
// while calls take tokens from those that it holds, without asking etcd. Where a call gets no token, it returns a value;
// package concurrency makes the error of it that users see.
package ratelimit
