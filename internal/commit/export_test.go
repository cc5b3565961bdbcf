package commit

import "time"

// GroupsAtOnce is how many requests are under way before others gather, in these tests.
const GroupsAtOnce = 4

// BytesOf returns the length of the keys and values in a Txn.
var BytesOf = bytesOf

// WaitUntilSent has parts wait for company however long that takes.
func (g *Group) WaitUntilSent() { g.queue.Wait = time.Hour }

// Waiting returns how many parts wait for company.
func (g *Group) Waiting() int { return g.queue.Waiting() }
