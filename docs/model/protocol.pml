/*
 * The protocol of etcdkit's queue, for exhaustive checking with spin. README.md
 * says how to run and read this, and what is left out.
 *
 * One queue; three clients with a session each, who ask, wait, hold and release,
 * or give up; operators who evict and who change the limit; a network that loses,
 * delays and repeats; leases that end.
 *
 * run chooses the scenario with the macros below, and takes out a rule by defining
 * NO_...: the comment there names the function of the product that has the rule.
 */

#define N      3              /* clients */
#define KEYS   6              /* slot keys: two of each client's session */
#define OWNER(k) ((k) % N)    /* client c has slots c and c+3 */

#ifndef LIMIT
#define LIMIT 1               /* the limit at first */
#endif
#ifndef FIRST
#define FIRST 2               /* requests of client 0 */
#endif
#ifndef OTHERS
#define OTHERS 1              /* requests of each other client */
#endif
#ifndef THIRD
#define THIRD OTHERS          /* requests of client 2 */
#endif
#define TRIES(c) (c == 0 -> FIRST : (c == 1 -> OTHERS : THIRD))
#ifndef FAULTS
#define FAULTS 2              /* messages that the network mistreats */
#endif
#ifndef LOSSES
#define LOSSES 1              /* leases that are not renewed in time */
#endif
#ifndef EARLY
#define EARLY 0               /* leases that etcd ends although they are renewed */
#endif
#ifndef EVICTIONS
#define EVICTIONS 0
#endif
#ifndef CHANGES
#define CHANGES 0             /* changes of the limit */
#endif

/* ---- what etcd holds ---- */

byte rev;                     /* counts creations and limit changes: nothing else compares revisions */
byte born[KEYS];              /* create revision of a slot key; 0: there is none */
byte nonce[KEYS];             /* its value: which request of the client wrote it */
byte word[KEYS];              /* a notice to the owner: the request with that token was taken away */
bool lease[N];                /* a lease stands, and with it the presence key */
byte mod[N];                  /* mod revision of the presence key, counted by itself */
byte id;                      /* the ID key: number of the slot that it names, plus 1; 0: there is none */

byte limit = LIMIT;           /* the limit's record, its mod revision and its nonce */
byte through, previous, limitmod, limitby;
bool settled = 1;
byte history;                 /* Through as a list of the revision before limitmod gives it */
bool known = 1;               /* and whether it gives it exactly */

/* ---- the rule of admission ---- */

/* How many requests stand before this one. */
#define BEFORE(j, k) (born[j] && born[j] < born[k])
#define POS(k) (BEFORE(0,k) + BEFORE(1,k) + BEFORE(2,k) + BEFORE(3,k) + BEFORE(4,k) + BEFORE(5,k))
#define COUNT  ((born[0]>0) + (born[1]>0) + (born[2]>0) + (born[3]>0) + (born[4]>0) + (born[5]>0))

/* The truth: a request is admitted when it first fits the limit in force, and
 * then until its key is gone. No client reads this. */
bool in[KEYS];

inline admit() {
	x = 0;
	do
	:: x < KEYS -> if :: !born[x] -> in[x] = 0 :: else -> in[x] = in[x] || POS(x) < limit fi; x++
	:: else -> break
	od;
	x = 0
}

/* What a mirror concludes from one state of the range (mirror.Mirror.outcome, rank.Queue.Admit). */
#ifdef NO_REVISION_ORDER      /* rank.Entry.before: by create revision; without, by the keys' names */
#define AHEAD(j, k) (born[j] && j < k)
#define VIEWPOS(k) (AHEAD(0,k) + AHEAD(1,k) + AHEAD(2,k) + AHEAD(3,k) + AHEAD(4,k) + AHEAD(5,k))
#else
#define VIEWPOS(k) POS(k)
#endif
#define VIEW(k)  (born[k] && (born[k] <= through || VIEWPOS(k) < limit))

/* Whom Status shows as holders (mirror.Mirror.View). */
#define DOUBT    (previous && !settled)
#define SHOWN(k) (VIEW(k) || born[k] && DOUBT && born[k] < limitmod && POS(k) < previous)

/* ---- what the clients know ---- */

bool valid[N];                /* the session trusts its lease */
byte fence[N];                /* mod revision of the presence key, as far as known */
byte slot[KEYS];              /* FREE, TAKEN while a key of it may stand or appear, WASTED if another's key stood there */
#define FREE   0
#define TAKEN  1
#define WASTED 2
byte key[N], claim[N];        /* slot and token of the present request; token 0: not known to stand */
bool holds[N];                /* it has returned to its caller as a permit */
bool notified[N];             /* a notice came before the request had become a permit */
bool early[N];                /* etcd has ended the lease; word of it is under way */

/* ---- the network ---- */

mtype = { CREATE, DELETE, EVICT, SETLIMIT };
typedef Msg { mtype kind; byte key, num, fence, limit, through, previous; bool settled };
Msg m, late;                  /* the call being made; a copy that arrives later, or never */
bool answered, ok, fast;      /* what its caller sees */
byte got, x, copies;
byte faults = FAULTS, losses = LOSSES, earlies = EARLY, evictions = EVICTIONS, changes;

inline clear(msg) {
	msg.kind = 0; msg.key = 0; msg.num = 0; msg.fence = 0;
	msg.limit = 0; msg.through = 0; msg.previous = 0; msg.settled = 0
}

inline copy(to, from) {
	to.kind = from.kind; to.key = from.key; to.num = from.num; to.fence = from.fence;
	to.limit = from.limit; to.through = from.through; to.previous = from.previous; to.settled = from.settled
}

inline forget() { answered = 0; ok = 0; fast = 0; got = 0 }

/* ---- the transactions ---- */

/* The greatest token among those for whom a condition holds, or that is known from before
 * (rank.Queue.Through). */
inline greatest(into, cond) {
	into = through; x = 0;
	do
	:: x < KEYS -> if :: cond && born[x] > into -> into = born[x] :: else fi; x++
	:: else -> break
	od;
	x = 0
}

inline remove() { born[m.key] = 0; nonce[m.key] = 0; id = 0 }

/* The conditions of the transactions. A request is created by commit.Fence.Create, deleted by
 * commit.Remove, evicted by commit.RemoveWith; the limit's record is changed by commit.Swap. */
#ifdef NO_FENCE_COMPARE       /* commit.Fence.Create: the presence key stands as last known */
#define FENCED true
#else
#define FENCED (mod[OWNER(m.key)] == m.fence)
#endif
#ifdef NO_CREATE_ONCE         /* commit.Fence.Create: there is no key in the slot */
#define ABSENT true
#else
#define ABSENT !born[m.key]
#endif
#if !defined(SCENARIO_ID) || defined(NO_ID_COMPARE) /* queue.joining.creation: nor one of the ID */
#define ID_FREE true
#else
#define ID_FREE !id
#endif
#ifdef NO_LIMIT_IN_TXN        /* queue.joining.creation: queue and limit are read in the Txn */
#define LIMIT_SEEN LIMIT      /* as known from before */
#else
#define LIMIT_SEEN limit
#endif
#ifdef NO_RELEASE_COMPARE     /* commit.Remove: the request with that token, not any in its slot */
#define MINE   born[m.key]
#else
#define MINE   (born[m.key] == m.num)
#endif
#ifdef NO_EVICT_COMPARE       /* commit.RemoveWith: the same */
#define MEANT  born[m.key]
#else
#define MEANT  (born[m.key] == m.num)
#endif
#ifdef NO_LIMIT_COMPARE       /* commit.Swap: the record is as it was read */
#define UNCHANGED true
#else
#define UNCHANGED (limitmod == m.fence)
#endif

inline apply() {
	if
	:: m.kind == CREATE -> ok = lease[OWNER(m.key)] && FENCED && ABSENT && ID_FREE;
		if
		:: ok -> rev++; got = rev; nonce[m.key] = m.num;
#ifdef SCENARIO_ID
			id = m.key + 1;
#endif
			if :: !born[m.key] -> born[m.key] = rev :: else fi;
			fast = COUNT <= LIMIT_SEEN
		:: else
		fi
	:: m.kind == DELETE -> ok = born[m.key] && MINE;
		if :: ok -> remove() :: else fi
	:: m.kind == EVICT -> ok = born[m.key] && MEANT;
		if
		:: ok -> remove();
#ifndef NO_NOTICE             /* engine.requests.Evict: word for the owner, in the same Txn */
			word[m.key] = m.num
#endif
		:: else
		fi
	:: m.kind == SETLIMIT -> ok = UNCHANGED;
		if
		:: ok -> greatest(history, VIEW(x)); known = settled; rev++; limitmod = rev; limitby = m.num;
#ifdef NO_QUEUE_IN_TXN        /* limit.Store.Set: reads the queue in the Txn of the change */
			history = m.through;          /* without: what was read before */
#endif
			limit = m.limit; through = m.through; previous = m.previous; settled = m.settled;
			if :: settled || !known -> history = 0 :: else fi
		:: else
		fi
	:: else
	fi;
	printf("  etcd: %e slot %d, number %d: done %d, revision %d\n", m.kind, m.key, m.num, ok, rev);
	admit()
}

/* Whom the network mistreats. The first is client 0: without loss, since clients are alike. */
#if CHANGES > 0
#define MISTREATED (faults > 0 && m.kind == SETLIMIT)
#else
#define MISTREATED (faults > 0 && (faults < FAULTS || m.kind == EVICT || OWNER(m.key) == 0))
#endif

/* One call of m. It arrives, and the answer comes; or the network mistreats it. */
inline call() {
	answered = 1; copies = 1;
	if
	:: true
	:: MISTREATED -> faults--;
		if
		:: answered = 0; printf("  network: the answer will be lost\n")
		:: answered = 0; copies = 0; printf("  network: it is lost\n")
		:: !late.kind -> copy(late, m); answered = 0; copies = 0; printf("  network: it is delayed\n")
		:: copies = 2; printf("  network: etcd's client repeats it\n")
#ifdef REPEATS
		:: !late.kind -> copy(late, m); printf("  network: etcd's client repeats it, and one is delayed\n")
#endif
		fi
	fi;
	d_step { do :: copies > 0 -> apply(); copies-- :: else -> break od; clear(m) }
}

/* A lease ends: all its keys go. */
inline expire(c) {
	printf("etcd: the lease of session %d ends\n", c);
	lease[c] = 0; mod[c] = 0; word[c] = 0; word[c+N] = 0;
#ifndef NO_KEY_ON_LEASE       /* commit.Fence.Create: the key hangs on the session's lease */
	if :: id && OWNER(id-1) == c -> id = 0 :: else fi;
	born[c] = 0; born[c+N] = 0; nonce[c] = 0; nonce[c+N] = 0;
#endif
	admit()
}

/* ---- a client: concurrency.attempt.run, and then Permit.Release ---- */

/* Shut out all copies of creations sent so far (commit.Fence.settle). */
inline settle(c) {
	if
	:: lease[c] && mod[c] == fence[c] ->
#ifndef NO_FENCE_RAISE        /* commit.Fence.settle: puts the presence key again */
		mod[c]++; printf("session %d raises its fence\n", c)
#endif
	:: else
	fi
}

/* A session gets a lease (engine.opening.once). Names contain the lease, so what is under way
 * for an older one is void. */
inline begin(c) {
	if :: late.kind && late.kind != SETLIMIT && OWNER(late.key) == c -> clear(late) :: else fi;
	printf("session %d gets a lease\n", c);
	lease[c] = 1; mod[c] = 1; fence[c] = 1; valid[c] = 1; early[c] = 0;
	slot[c] = FREE; slot[c+N] = FREE; notified[c] = 0
}

#ifdef NO_NONCE               /* commit.found: a key is ours if it has the nonce of this request */
#define OWN(k, n) true
#else
#define OWN(k, n) (nonce[k] == n)
#endif

/* What a request is removed with when no call waits for that. */
mtype = { DISCARD, WITHDRAW };
mtype job[N];
byte jobkey[N], jobnum[N];

/* The caller does not wait any longer (engine.Epoch.Withdraw). */
inline giveup() {
	printf("client %d gives up its request %d\n", c, tries);
#ifndef NO_WITHDRAW           /* engine.Epoch.Withdraw: deletes the request */
	job[c] = WITHDRAW; jobkey[c] = key[c]; jobnum[c] = claim[c];
#endif
	goto ask
}

#ifdef NO_OWN_KEY_IN_VIEW     /* mirror.Mirror.outcome: an older view, of an empty queue, says nothing */
#define FITS(c) true
#else
#define FITS(c) (born[key[c]] == claim[c] && VIEW(key[c]))
#endif
#ifdef NO_VALID_AT_ACCEPT     /* engine.Epoch.Hold: looks at the deadline */
#define TRUSTED(c) true
#else
#define TRUSTED(c) valid[c]
#endif
#ifdef NO_NOTICE_KEPT         /* engine.roll.deliver: word that comes before its permit is kept */
#define WARNED(c) false
#else
#define WARNED(c) notified[c]
#endif

/* Clients that are alike ask for the first time in the order of their numbers: without loss. */
bool asked[N];
#if FIRST == OTHERS && (FAULTS == 0 || CHANGES > 0)
#define ITS_TURN(c) (c == 0 || asked[c-1])
#else
#define ITS_TURN(c) (c < 2 || asked[1])
#endif

proctype Client(byte c) {
	byte tries;
ask:
	atomic {
		claim[c] = 0; key[c] = 0; notified[c] = 0;
		if
		:: !valid[c] -> goto lost
		:: valid[c] && tries == TRIES(c) -> goto done
		:: valid[c] && tries < TRIES(c) && ITS_TURN(c) && slot[c] == FREE -> key[c] = c
		:: valid[c] && tries < TRIES(c) && ITS_TURN(c) && slot[c] != FREE && slot[c+N] == FREE -> key[c] = c + N
		fi;
		tries++; asked[c] = 1; slot[key[c]] = TAKEN;
		printf("client %d: request %d, in slot %d\n", c, tries, key[c]);
send:
		if
		:: !valid[c] -> goto lost
		:: valid[c] -> printf("client %d sends\n", c); m.kind = CREATE; m.key = key[c]; m.num = tries; m.fence = fence[c]; call()
		fi;
		if
#ifdef NO_SETTLE              /* commit.Fence.Create: no answer is not taken for a no */
		:: !answered -> slot[key[c]] = FREE; forget(); goto ask
#endif
		:: !answered -> forget(); goto doubt
		:: answered && !ok -> forget(); goto look
		:: answered && ok && fast -> claim[c] = got; forget(); goto accept
		:: answered && ok && !fast -> claim[c] = got; forget(); goto wait
		fi
	}
look: /* a condition failed: see which (commit.Fence.look) */
	atomic {
		if
		:: !valid[c] -> goto lost
		:: valid[c] && !lease[c] -> valid[c] = 0; goto lost
		:: valid[c] && lease[c] && born[key[c]] && OWN(key[c], tries) -> claim[c] = born[key[c]]; goto wait
		:: valid[c] && lease[c] && born[key[c]] && !OWN(key[c], tries) -> slot[key[c]] = WASTED; goto ask
		:: valid[c] && lease[c] && !born[key[c]] && mod[c] != fence[c] -> fence[c] = mod[c]; goto send
		:: valid[c] && lease[c] && !born[key[c]] && mod[c] == fence[c] ->
#ifdef SCENARIO_ID
			slot[key[c]] = FREE; goto inuse
#else
			goto send
#endif
		fi
	}
doubt: /* no answer: shut out what is under way, and see what stands */
	atomic {
		if
		:: !valid[c] -> goto lost
		:: valid[c] && !job[c] -> job[c] = DISCARD; jobkey[c] = key[c]; jobnum[c] = tries;
			printf("client %d gives up its request %d: it is discarded\n", c, tries);
#ifdef NO_SLOT_KEPT           /* engine.Epoch.Discard: the slot is taken until that is done */
			slot[key[c]] = FREE;
#endif
			goto ask
		:: valid[c] && faults > 0 && lease[c] && mod[c] == fence[c] -> faults--; settle(c); goto doubt  /* no answer again */
		:: valid[c] && !lease[c] -> valid[c] = 0; goto lost
		:: valid[c] && lease[c] -> settle(c); fence[c] = mod[c];
			if
			:: born[key[c]] && OWN(key[c], tries) -> claim[c] = born[key[c]]; goto wait
			:: born[key[c]] && !OWN(key[c], tries) -> slot[key[c]] = WASTED; goto ask
			:: !born[key[c]] -> goto send
			:: !born[key[c]] -> slot[key[c]] = FREE; goto ask
			fi
		fi
	}
inuse: /* the ID is in use: leave it, or take it over */
#ifdef SCENARIO_ID
	atomic {
		key[c] = 0;
		if
		:: true -> goto ask
		:: id && !word[id-1] -> claim[c] = born[id-1]; key[c] = id - 1
		:: !id -> goto ask
		fi
	}
evict:
	atomic {
		m.kind = EVICT; m.key = key[c]; m.num = claim[c]; call();
		if
		:: answered -> forget(); goto ask
		:: !answered -> forget(); goto evict
		fi
	}
#endif
wait:
end2:
	atomic {
		if
		:: !valid[c] -> goto lost
		:: valid[c] && FITS(c) -> goto accept
		:: valid[c] && born[key[c]] != claim[c] -> slot[key[c]] = FREE; goto ask
#ifndef PATIENT
		:: valid[c] && !job[c] -> giveup()
#endif
		fi
	}
accept: /* an answer that comes too late is no permit */
	atomic {
		if
		:: !TRUSTED(c) -> goto lost
		:: TRUSTED(c) && WARNED(c) && !job[c] -> giveup()
		:: TRUSTED(c) && !WARNED(c) -> holds[c] = 1; printf("client %d holds token %d\n", c, claim[c])
		fi
	}
hold:
	if
	:: atomic { !holds[c] ->                                /* its context has ended */
		if :: valid[c] -> slot[key[c]] = FREE :: else fi;
		goto ask }
	:: atomic { holds[c] -> holds[c] = 0; printf("client %d releases token %d\n", c, claim[c]); goto release }
	fi;
release:
	atomic {
		if
		:: !valid[c] -> goto lost
		:: valid[c] -> m.kind = DELETE; m.key = key[c]; m.num = claim[c]; call()
		fi;
		if
		:: answered -> slot[key[c]] = FREE; forget(); goto ask
		:: !answered -> forget(); goto release
		fi
	}
lost:
	atomic { claim[c] = 0; key[c] = 0;
end1:		!lease[c] && !job[c];
		if :: tries == TRIES(c) -> goto done :: tries < TRIES(c) fi;
		begin(c); goto ask
	}
done:	claim[c] = 0
}

/* A notice arrives (engine.Epoch.notice). */
inline listen(who, its) {
	if
	:: key[who] == its && claim[who] == word[its] && holds[who] -> holds[who] = 0; printf("client %d hears of it\n", who)
	:: key[who] == its && claim[who] == word[its] && !holds[who] -> notified[who] = 1
	:: else
	fi;
	word[its] = 0
}

#ifdef NO_PRESENCE_WATCH      /* engine.Epoch.Apply: the presence key's deletion is loss */
#define WATCHED false
#else
#define WATCHED true
#endif

proctype Session(byte c) {
end:	do
	:: atomic { job[c] && !valid[c] -> job[c] = 0; jobkey[c] = 0; jobnum[c] = 0 }
	:: atomic { valid[c] && job[c] == DISCARD && faults > 0 && lease[c] && mod[c] == fence[c] -> faults--; settle(c) }
	:: atomic { valid[c] && job[c] == DISCARD && lease[c] -> settle(c); fence[c] = mod[c];
		if
		:: born[jobkey[c]] && OWN(jobkey[c], jobnum[c]) -> job[c] = WITHDRAW; jobnum[c] = born[jobkey[c]]
		:: else -> slot[jobkey[c]] = FREE; job[c] = 0; jobkey[c] = 0; jobnum[c] = 0
		fi }
	:: atomic { valid[c] && job[c] == WITHDRAW ->
		printf("session %d withdraws a request\n", c); m.kind = DELETE; m.key = jobkey[c]; m.num = jobnum[c]; call();
		if
		:: answered -> slot[jobkey[c]] = FREE; job[c] = 0; jobkey[c] = 0; jobnum[c] = 0
		:: else
		fi;
		forget() }

	/* the deadline passes: no permit of this lease is trusted any more */
	:: atomic { valid[c] && losses > 0 -> losses--; valid[c] = 0; holds[c] = 0;
		printf("session %d: the deadline has passed\n", c) }
	/* then etcd ends it */
	:: d_step { lease[c] && !valid[c] -> expire(c) }
#ifdef NO_DEADLINE            /* lease.Lease.Valid: ends before the lease; without, etcd is first */
	:: d_step { lease[c] && valid[c] && losses > 0 -> losses--; expire(c) }
#endif
	/* the documented exception: etcd ends a lease, or its keys are deleted by hand, early */
	:: d_step { lease[c] && valid[c] && earlies > 0 -> earlies--; early[c] = WATCHED; expire(c) }
	:: atomic { valid[c] && !lease[c] && WATCHED -> valid[c] = 0; holds[c] = 0; early[c] = 0 }
	:: atomic { word[c] -> listen(c, c) }
	:: atomic { word[c+N] -> listen(c, c+N) }
	od
}

/* ---- operators and the rest of the network ---- */

#if EVICTIONS > 0
proctype Evictor() {
	byte k, token;
end:	do
	:: evictions > 0 ->
		atomic {
			evictions--;
			if
			:: k = 0 :: k = 1 :: k = 2 :: k = 3 :: k = 4 :: k = 5
			fi;
			if
			:: born[k] && !word[k] -> token = born[k]
			:: else -> k = 0; goto end
			fi
		}
again:		atomic {
			m.kind = EVICT; m.key = k; m.num = token; call();
			if
			:: answered -> forget(); k = 0; token = 0
			:: !answered -> forget(); goto again
			fi
		}
	od
}
#endif

#if CHANGES > 0
#ifdef NO_THROUGH             /* limit.change: hands on who was admitted */
#define THROUGH 0
#else
#define THROUGH upto
#endif
#ifdef NO_PREVIOUS            /* limit.change: names the limit that was lowered */
#define PREVIOUS 0
#else
#define PREVIOUS before
#endif
#ifdef NO_HANDING_ON          /* limit.change: also for a change that no client settled */
#define HANDED_ON 0
#else
#define HANDED_ON previous
#endif
#ifdef NO_PROOF_IN_THROUGH    /* mirror.Mirror.View: Through is of the admitted, not of all shown */
#define UPTO(k) SHOWN(k)
#else
#define UPTO(k) VIEW(k)
#endif

/* An operator makes one change (limit.Store.Set). They are alike, and begin in their order. */
proctype Operator(byte change) {
	byte now, upto, before, at;
	bool doubt, own;                /* an answer was lost; its own change is made */
end1:	changes == change - 1;
read:
	atomic {
		changes = (changes < change -> change : changes);
		at = limitmod; before = 0; upto = 0;
		if
		:: DOUBT && known -> now = limit; goto exact    /* settle what another has left */
		:: DOUBT -> before = HANDED_ON                  /* its history is compacted */
		:: !DOUBT
		fi;
		greatest(upto, UPTO(x));
		if
		:: now = 0
		:: now = 2
#if CHANGES < 3               /* more than that is too much together */
		:: now = 1
#endif
		fi;
		if :: now < limit && limit > before -> before = limit :: else fi
	}
swap:
	atomic {
		m.kind = SETLIMIT; m.fence = at; m.num = change; m.limit = now; m.through = THROUGH;
		m.previous = PREVIOUS; m.settled = !m.previous;
		printf("operator %d: limit %d, through %d, previous %d\n", change, now, m.through, m.previous);
		call();
		if
		:: !answered -> forget(); doubt = 1; goto swap
		:: answered && limitby == change -> forget(); at = limitmod; own = 1;
			if
			:: DOUBT && known -> goto exact
			:: goto next                            /* there is no doubt, or it is left to others */
			fi
		:: answered && limitby != change && !doubt -> forget(); goto read
		:: answered && limitby != change && doubt -> forget();
#ifdef NO_OVERTAKEN           /* commit.Swap: its revision is not known, so nothing is settled */
			at = rev; own = 1; goto exact
#else
			goto next                               /* done, and a newer one came right after it */
#endif
		fi
	}
exact: /* the second step: who had been admitted up to the change (limit.settled) */
	atomic {
		m.kind = SETLIMIT; m.fence = at; m.limit = now; m.settled = 1; m.through = history;
		printf("operator %d settles: limit %d, through %d\n", change, now, history);
		call();
		if
		:: !answered -> forget(); goto exact
		:: answered && own -> forget(); goto next
		:: answered && !own -> forget(); goto read
		fi
	}
next:
	atomic { now = 0; upto = 0; before = 0; at = 0; doubt = 0; own = 0 }
}
#endif

#ifdef REPEATS
/* A session looks for keys on its lease that belong to none of its requests (engine.Epoch.sweep). */
proctype Sweeper(byte c) {
	byte k, token;
#ifndef NO_SWEEP              /* engine.Epoch.sweep: deletes what no call asked for */
end:
	if
	:: atomic { valid[c] && born[c] && slot[c] != TAKEN -> k = c; token = born[k] }
	:: atomic { valid[c] && born[c+N] && slot[c+N] != TAKEN -> k = c+N; token = born[k] }
	fi;
	atomic {
		printf("session %d sweeps\n", c); m.kind = DELETE; m.key = k; m.num = token; call(); forget();
		k = 0; token = 0; goto end
	}
#endif
}
#endif

proctype Network() {
end:	do
	:: atomic { late.kind -> copy(m, late); clear(late); printf("network: a late copy arrives\n");
		d_step { apply(); clear(m) } forget() }
	od
}

/* ---- what must hold ---- */

#define STANDS(c)  (claim[c] && born[key[c]] == claim[c] && in[key[c]])
#define NOTICED(c) (early[c] || word[key[c]] == claim[c])   /* the documented exceptions: word is under way */
#define SURE(c)    (holds[c] && !NOTICED(c))
#define EACH(p)    (p(0) && p(1) && p(2) && p(3) && p(4) && p(5))

#define TRUE_BELIEF(c) (!SURE(c) || STANDS(c))
#define OWNED(k)   (!born[k] || lease[OWNER(k)] && key[OWNER(k)] == k && claim[OWNER(k)] == born[k])
#define IN_USE(k)  (slot[k] != TAKEN || !valid[OWNER(k)] || key[OWNER(k)] == k && claim[OWNER(k)])
#define FITTING(k) (slot[k] != WASTED)
#define RIGHT(k)   (!VIEW(k) || in[k])
#define ALL_SHOWN(k) (!in[k] || SHOWN(k))
#define EXACT(k)   (!settled || !SHOWN(k) || in[k])

proctype Monitor() {
	bool believed_in_vain, more_than_the_limit, admitted_in_vain, holder_not_shown, shown_in_vain,
		two_of_one_id, slot_wasted, key_leaked, slot_leaked;
	if
	:: !(TRUE_BELIEF(0) && TRUE_BELIEF(1) && TRUE_BELIEF(2)) -> assert(believed_in_vain)
#if CHANGES == 0
	:: SURE(0) + SURE(1) + SURE(2) > LIMIT -> assert(more_than_the_limit)
#endif
	:: !EACH(RIGHT) -> assert(admitted_in_vain)
#if CHANGES > 0
	:: !EACH(ALL_SHOWN) -> assert(holder_not_shown)
	:: !EACH(EXACT) -> assert(shown_in_vain)
#endif
#ifdef SCENARIO_ID
	:: COUNT > 1 -> assert(two_of_one_id)
#endif
#ifndef REPEATS               /* no key of another client, and no unknown copy, is in the way */
	:: !EACH(FITTING) -> assert(slot_wasted)
#endif
	/* when nothing is left to happen */
	:: timeout ->
		if
		:: !EACH(OWNED) || (id && !born[id-1]) -> assert(key_leaked)
		:: !EACH(IN_USE) -> assert(slot_leaked)
		:: else
		fi
	fi;
end:	false
}

init {
	d_step { begin(0); begin(1); begin(2) };
	atomic {
		run Client(0); run Client(1); run Client(2);
		run Session(0); run Session(1); run Session(2);
#if EVICTIONS > 0
		run Evictor();
#endif
#if CHANGES > 0
		run Operator(1);
#if CHANGES > 1
		run Operator(2);
#endif
#if CHANGES > 2
		run Operator(3);
#endif
#endif
#ifdef REPEATS
		run Sweeper(0); run Sweeper(1); run Sweeper(2);
#endif
		run Network(); run Monitor()
	}
}
