// Package backend runs child processes that serve HTTP, behind a reverse proxy: the program starts
// itself again for each of them, and can kill, pause and replace them while requests arrive.
package backend
