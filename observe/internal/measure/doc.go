// Package measure is what hooks measure, whatever receives it: the instruments, what each call and event
// adds to them, and the bound on names. observe/otelkit and observe/promkit differ in where it goes.
package measure
