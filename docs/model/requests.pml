/*
 * The protocol of a request with one key (package idempotency, design note 48), for exhaustive
 * checking with spin. requests.md says what is left out.
 *
 * One request; N callers, each a process with a session and a work lease. A caller reads the record,
 * claims the request or gets its outcome; its function runs, records a recovery point, and ends
 * in one of the ways that there are; an operator resolves; the network loses, delays and repeats;
 * leases end.
 *
 * run chooses the scenario with the macros below, and takes out a rule by defining NO_...: the
 * comment there names the function of the product that has the rule.
 */

#ifndef N
#define N 3
#endif
#ifndef FIRST
#define FIRST 1               /* calls of caller 0 */
#endif
#ifndef OTHERS
#define OTHERS 1              /* calls of each other caller */
#endif
#define TRIES(c) ((c) == 0 -> FIRST : OTHERS)
#ifndef FAULTS
#define FAULTS 1              /* messages that the network mistreats */
#endif
#ifndef LOSSES
#define LOSSES 0              /* sessions whose lease is not renewed in time */
#endif
#ifndef WLOSSES
#define WLOSSES 0             /* work leases that are not renewed in time */
#endif
#ifndef HANDS
#define HANDS 0               /* records and presence keys that are deleted by hand */
#endif
#ifndef RESOLVES
#define RESOLVES 0            /* calls of Resolve */
#endif
#ifdef REFUSE
#define REFUSING(c) ((c) == 0)  /* callers whose policy is Refuse */
#else
#define REFUSING(c) false
#endif
#ifdef STEP_POINTS
#define STEPS(c) true         /* functions may record a recovery point */
#else
#define STEPS(c) false
#endif
#ifdef BOUNDED
#define OVERDUE(c) true       /* functions may take longer than MaxExecution */
#else
#define OVERDUE(c) false
#endif
#ifdef ATTACH
#define ATTACHED(c) ((c) == 0)  /* callers that give a condition to Attach */
#else
#define ATTACHED(c) false
#endif

/* An attempt has a number, its nonce: that of its caller and its call. */
#define ID(c, n)  ((n) * N + (c) + 1)
#define OWNER(id) (((id) - 1) % N)
#define OPERATOR  99          /* instead, in what an operator has recorded */

/* ---- what etcd holds ---- */

mtype = { WORKING, LOST, RELEASED, DONE, CLAIM, AMEND };

byte rev;                     /* counts changes of the record */
mtype st;                     /* the record: its state, 0 if there is none; */
byte by;                      /* the attempt, and with it the session that it names; */
bool pt;                      /* it has a recovery point; of an outcome: with what was attached; */
byte mod;                     /* and its mod revision, 0 if there is none */
bool alive[N];                /* a session's presence key */
byte pmod[N];                 /* its mod revision, counted by itself */
bool work[N];                 /* a work lease */
bool met;                     /* the condition that was given to Attach */

/* ---- what the callers know ---- */

bool valid[N];                /* the session trusts its lease */
bool wvalid[N];               /* the process trusts its work lease */
byte fence[N];                /* mod revision of the presence key, as far as known */
byte id[N];                   /* the present attempt, 0 for none */
bool runs[N];                 /* its function runs, and its context has not ended */
bool ends[N];                 /* its outcome is being written */
bool busy[N];                 /* its function has not returned, whatever its context says */
bool refused[N];              /* its caller knows that its outcome is not recorded: ErrConflict */

/* ---- what has happened, for the properties ---- */

byte latest;                  /* the attempt whose function was called last */
byte ran;                     /* functions that were called, less those that have released */
bool strict;                  /* one of them has the policy Refuse */
bool pointed;                 /* a recovery point was recorded */
byte outcome;                 /* whose outcome was recorded, 0: none */
byte judged;                  /* the attempt of which a caller knows that it is lost, 0: none */
bool byhand;                  /* something was deleted by hand: the documented exception */
#ifdef NO_GUARD_PREFIX        /* idempotency.Attempt.Guard: a revision to compare */
byte first_mod[N];            /* the revision of its claim */
#endif
bool fellout[N];              /* the record of the attempt has gone with its lease, or an operator has resolved it */
bool bad_told, bad_fenced, bad_unknown, bad_ran, bad_work, bad_point;

/* ---- the network ---- */

typedef Msg { mtype kind; byte c, mod, fence, over; mtype st; byte by; bool pt, att };
Msg m, late;                  /* the call being made; a copy that arrives later, or never */
bool answered, ok, gone;      /* what its caller sees: gone is "lease not found" */
byte copies, x;
byte faults = FAULTS, losses = LOSSES, wlosses = WLOSSES, hands = HANDS;

inline clear(msg) {
	msg.kind = 0; msg.c = 0; msg.mod = 0; msg.fence = 0; msg.over = 0; msg.st = 0; msg.by = 0; msg.pt = 0; msg.att = 0
}
inline copy(to, from) {
	to.kind = from.kind; to.c = from.c; to.mod = from.mod; to.fence = from.fence; to.over = from.over;
	to.st = from.st; to.by = from.by; to.pt = from.pt; to.att = from.att
}
inline forget() { answered = 0; ok = 0; gone = 0 }

/* ---- the transactions ---- */

#ifdef NO_CLAIM_FENCED        /* commit.Fence.Create: the presence key is as last known */
#define FENCED true
#else
#define FENCED (alive[m.c] && pmod[m.c] == m.fence)
#endif
#ifdef NO_CLAIM_MOD           /* commit.Creation.expected: the record is as it was read */
#define AS_READ true
#else
#define AS_READ (mod == m.mod)
#endif
#ifdef NO_AMEND_MOD           /* commit.Amend: the record is as the attempt knows it */
#define UNCHANGED true
#else
#define UNCHANGED (mod == m.mod)
#endif
#ifdef NO_RECORD_LEASE        /* idempotency.claim.send: the record is on a lease that outlives the process */
#define HANGS_ON(c) alive[c]
#else
#define HANGS_ON(c) work[c]
#endif
/* A record of an attempt that has not ended is on its work lease, another one on that of a retention. */
#define LEASED(s, b) ((s) != WORKING && (s) != LOST || HANGS_ON(OWNER(b)))

inline put() {
	st = m.st; by = m.by; pt = m.pt;
	if
	:: !m.st -> mod = 0; by = 0; pt = 0
	:: else -> rev++; mod = rev
	fi;
	if :: st == DONE && !outcome -> outcome = by :: else fi;
#if RESOLVES > 0
	if
	:: by == OPERATOR -> ran = 0; strict = 0; fellout[0] = 1; fellout[1] = 1; fellout[N-1] = 1
	:: else
	fi;
#endif
	if :: st == WORKING && pt -> pointed = 1 :: else fi
}

inline apply() {
	if
	:: m.kind == CLAIM -> ok = AS_READ && FENCED && (!m.over || !alive[OWNER(m.over)])
	:: m.kind == AMEND -> ok = UNCHANGED && (!m.att || met)
	:: else
	fi;
	gone = ok && m.st && !LEASED(m.st, m.by);
	if :: gone -> ok = 0 :: else fi;
	if :: ok -> put() :: else fi;
	printf("  etcd: %e %e attempt %d, point %d: done %d, revision %d\n", m.kind, m.st, m.by, m.pt, ok, mod)
}

/* One call of m. It arrives, and the answer comes; or the network mistreats it. */
inline call() {
	answered = 1; copies = 1;
	if
	:: true
	:: faults > 0 -> faults--;
		if
		:: answered = 0; printf("  network: the answer will be lost\n")
		:: answered = 0; copies = 0; printf("  network: it is lost\n")
		:: !late.kind -> copy(late, m); answered = 0; copies = 0; printf("  network: it is delayed\n")
		:: copies = 2; printf("  network: etcd's client repeats it\n")
		fi
	fi;
	d_step { do :: copies > 0 -> apply(); copies-- :: else -> break od; clear(m) }
}

/* ---- what a reader concludes ---- */

#define IN_PROGRESS (st == WORKING && alive[OWNER(by)])
#define NO_OUTCOME  (st == LOST || st == WORKING && !alive[OWNER(by)])
#ifdef NO_POLICY_IN_RECORD    /* idempotency.decide: that of the lost attempt counts, too */
#define REFUSED(c)  REFUSING(c)
#else
#define REFUSED(c)  (REFUSING(c) || REFUSING(OWNER(by)))
#endif

/* ---- a caller: idempotency.call.lead, claim.claim, and then the attempt ---- */

mtype = { STEP, RESOLVE, COMMIT, SAME, RELEASE, ABANDON, DROP };

/* Shut out all copies of claims sent so far (commit.Fence.settle). */
inline settle(c) {
	if
	:: alive[c] && pmod[c] == fence[c] ->
#ifndef NO_CLAIM_RAISE        /* commit.Fence.settle: puts the presence key again */
		pmod[c]++; fence[c] = pmod[c]; printf("session %d raises its fence\n", c)
#endif
	:: else
	fi
}

#ifdef NO_CLAIM_NONCE         /* idempotency.claim.send: a record is of this claim if it has its nonce */
#define CLAIMED(c) (st == WORKING)
#else
#define CLAIMED(c) (st == WORKING && by == id[c])
#endif

/* The function is called (idempotency.claim.start). */
inline begin(c) {
	printf("caller %d: the function of attempt %d is called\n", c, id[c]);
	runs[c] = 1; ends[c] = 0; busy[c] = 1; refused[c] = 0; fellout[c] = 0; latest = id[c];
	if :: ran && (strict || REFUSING(c)) && !byhand -> bad_ran = 1 :: else fi;
	if :: pointed && !pt && !byhand -> bad_point = 1 :: else fi;
	x = 0;
	do
	:: x < N -> if :: x != c && busy[x] && alive[x] && (REFUSING(x) || REFUSING(c)) && !byhand -> bad_work = 1 :: else fi; x++
	:: else -> break
	od;
	x = 0;
	ran++; strict = strict || REFUSING(c)
}

/* Its attempt is over: the record is another's, or gone. */
inline fenced(c) {
	printf("caller %d: attempt %d is fenced\n", c, id[c]);
	if :: latest == id[c] && !fellout[c] && !byhand && !(st && by != id[c]) -> bad_fenced = 1 :: else fi
}

#ifdef NO_RESTORE             /* idempotency.withdrawal.try: puts back what was before the claim */
#define RESTORED 0
#else
#define RESTORED bst
#endif
#ifdef NO_WITHDRAW_TEXT       /* idempotency.withdrawal.try: only if the record is that of the claim */
#define MY_CLAIM (st != 0)
#else
#define MY_CLAIM (st == WORKING && by == id[c])
#endif
#ifdef NO_ENDED_FIRST         /* idempotency.Attempt.settle: the context ends before the key is released */
#define END_FIRST(c)
#else
#define END_FIRST(c) runs[c] = 0
#endif
#ifdef NO_RELEASE_KEPT        /* idempotency.settlement.release: keeps the recovery points */
#define AFTER_RELEASE 0
#else
#define AFTER_RELEASE (opt -> RELEASED : 0)
#endif
#ifdef NO_OUTCOME_FOUND       /* idempotency.settlement.writeRecord: the record found by its value is the outcome */
#define FOUND_OUTCOME false
#else
#define FOUND_OUTCOME (st == DONE && by == id[c] && pt == attach)
#endif
#ifdef NO_REGAINED            /* idempotency.ownRecord.regained: its own text at another revision is its own */
#define REGAINED false
#else
#define REGAINED (st == ost && by == id[c] && pt == opt)
#endif

proctype Caller(byte c) {
	byte tries;
	mtype bst; byte bby, bmod; bool bpt;    /* the record as it was read */
	mtype ost; bool opt; byte omod;         /* as the attempt knows it */
	mtype ust; bool upt;                    /* what an unanswered put may have written, 0: nothing */
	mtype op, then;                         /* the write under way, and the one after a RESOLVE */
	bool doubt, attach, dropped;
ask:
	atomic {
		id[c] = 0; bst = 0; bby = 0; bmod = 0; bpt = 0; ost = 0; opt = 0; omod = 0; ust = 0; upt = 0;
		op = 0; then = 0; doubt = 0; attach = 0; dropped = 0; busy[c] = 0; runs[c] = 0; ends[c] = 0; refused[c] = 0;
		if
		:: tries == TRIES(c) || !valid[c] || !wvalid[c] -> goto done
		:: else
		fi
	}
read:
end2:
	atomic { /* record and presence key, as of one revision (idempotency.reader.read) */
		if
		:: !valid[c] || !wvalid[c] -> goto done
#ifdef NO_PAIR                /* idempotency.reader.read: the presence key is read with the record */
		:: valid[c] && wvalid[c] && IN_PROGRESS -> bby = by; goto second
#endif
		:: valid[c] && wvalid[c] && st == DONE -> printf("caller %d gets the outcome of %d\n", c, by); goto done
		:: valid[c] && wvalid[c] && NO_OUTCOME && REFUSED(c) -> judged = by; printf("caller %d gets: unknown, %d\n", c, by); goto done
		:: valid[c] && wvalid[c] && st != DONE && !IN_PROGRESS && !(NO_OUTCOME && REFUSED(c)) ->
			bst = st; bby = by; bpt = pt; bmod = mod;
			if :: NO_OUTCOME -> judged = by :: else fi;
			id[c] = ID(c, tries); tries++
		fi
	}
	goto claim;
#ifdef NO_PAIR                /* idempotency.reader.read: the second of two reads */
second: /* the presence key, later */
	atomic {
		if
		:: alive[OWNER(bby)] -> goto read
		:: !alive[OWNER(bby)] && (REFUSING(c) || REFUSING(OWNER(bby))) ->
			printf("caller %d gets: unknown, %d\n", c, bby);
			bad_unknown = bad_unknown || !(NO_OUTCOME && by == bby); goto done
		:: else -> goto read
		fi
	}
#endif
claim: /* idempotency.claim.send */
	atomic {
		printf("caller %d claims: attempt %d\n", c, id[c]);
		m.kind = CLAIM; m.c = c; m.mod = bmod; m.fence = fence[c]; m.st = WORKING; m.by = id[c]; m.pt = bpt;
		if :: bst == WORKING -> m.over = bby :: else fi;
		call();
		if
		:: answered && ok -> forget(); omod = mod; goto claimed
		:: answered && gone -> forget(); goto undo
		:: answered && !ok && !gone -> forget()
		:: !answered -> forget(); goto lost
		fi
	}
look: /* a condition failed: see which (commit.Fence.unmet) */
	atomic {
		if
		:: !alive[c] -> goto undo
		:: alive[c] && mod != bmod && CLAIMED(c) -> omod = mod; goto claimed
		:: alive[c] && mod != bmod && !CLAIMED(c) -> goto again
		:: alive[c] && mod == bmod && pmod[c] != fence[c] -> fence[c] = pmod[c]; goto claim
		:: alive[c] && mod == bmod && pmod[c] == fence[c] -> goto again
		fi
	}
lost: /* no answer: shut out what is under way, and see what is there */
	atomic {
		if
		:: !alive[c] -> goto undo
		:: alive[c] -> settle(c);
			if
			:: mod != bmod && CLAIMED(c) -> omod = mod; goto claimed
			:: mod != bmod && !CLAIMED(c) -> goto again
			:: mod == bmod -> goto claim
			fi
#ifdef NO_DISCARD             /* idempotency.claim.discard: takes back what a caller that gives up has sent */
		:: true -> printf("caller %d gives up\n", c); goto ask
#else
		:: true -> printf("caller %d gives up\n", c); goto discard
#endif
		fi
	}
again: /* another one was faster: read again, with the same number, which was never written */
	atomic { tries--; id[c] = 0; goto ask }
discard: /* idempotency.claim.discard */
	atomic { settle(c) }
undo: /* idempotency.withdrawal.try */
	atomic {
		if
		:: !MY_CLAIM -> goto ask
		:: MY_CLAIM ->
			printf("caller %d takes its claim back\n", c);
			m.kind = AMEND; m.c = c; m.mod = mod; m.st = RESTORED;
			if :: m.st -> m.by = bby; m.pt = bpt :: else fi;
			call();
			if
			:: answered && ok -> forget(); goto ask
			:: answered && gone -> forget(); bst = 0; bby = 0; bpt = 0; goto undo /* it would have expired */
			:: !answered || !ok && !gone -> forget(); goto undo
			fi
		fi
	}
claimed:
	atomic {
		if
		:: !valid[c] || !wvalid[c] -> goto undo
		:: else -> begin(c); ost = WORKING; opt = bpt; attach = ATTACHED(c);
#ifdef NO_GUARD_PREFIX        /* idempotency.Attempt.Guard: that of the claim */
			first_mod[c] = omod;
#endif
			skip
		fi
	}
working: /* what a function does, and how it ends */
	atomic {
		if
		:: runs[c] && !opt && !ust && STEPS(c) -> op = STEP; printf("caller %d records a point\n", c)
		:: runs[c] -> op = COMMIT; printf("caller %d commits\n", c)
		:: runs[c] && !attach -> op = RELEASE; END_FIRST(c); printf("caller %d releases\n", c)
		:: runs[c] && !attach -> printf("caller %d abandons\n", c);
#ifdef NO_LOST                /* idempotency.settlement.abandon: has the record say that the attempt is lost */
			goto ask
#else
			op = ABANDON; END_FIRST(c)
#endif
		:: runs[c] && OVERDUE(c) -> runs[c] = 0; printf("caller %d: MaxExecution has passed\n", c)
		:: !runs[c]
		fi;
		if
		:: op == COMMIT || op == RELEASE || op == ABANDON -> ends[c] = 1; busy[c] = 0
		:: else
		fi;
		if
		:: op == RELEASE -> ran = 0; strict = 0 /* its word: as if the request had never been called */
		:: else
		fi;
		if :: op && op != STEP -> goto first :: op == STEP -> goto write :: else fi
	}
late_end: /* its context has ended before the function has (idempotency.Attempt.ungrounded, overdue) */
	atomic {
		if
		:: op = COMMIT; ends[c] = 1; busy[c] = 0; printf("caller %d commits late\n", c)
		:: alive[c] && valid[c] && !dropped -> printf("caller %d gives the attempt up\n", c);
#ifdef NO_DROP                /* idempotency.Attempt.drop: has the record say that the attempt is lost */
			dropped = 1; goto late_end
#else
			op = DROP
#endif
		:: !alive[c] || !valid[c] || dropped -> busy[c] = 0; goto ask   /* the function ends otherwise, or never */
		fi
	}
first: /* what was not answered is settled before the next write (idempotency.ownRecord.resolve) */
	atomic {
		doubt = 0;
		if
#ifndef NO_RESOLVE            /* idempotency.ownRecord.resolve: whether an unanswered put took effect */
		:: ust -> then = op; op = RESOLVE
#endif
		:: else
		fi
	}
write:
	atomic {
		m.kind = AMEND; m.c = c; m.mod = omod; m.by = id[c];
		if
		:: op == STEP -> m.st = WORKING; m.pt = 1
		:: op == RESOLVE || op == SAME -> m.st = ost; m.pt = opt
		:: op == COMMIT -> m.st = DONE; m.pt = attach; m.att = attach
		:: op == RELEASE -> m.st = AFTER_RELEASE; m.pt = opt
		:: op == DROP || op == ABANDON -> m.st = LOST; m.pt = opt
		fi;
		call();
		if
		:: answered && ok -> forget(); omod = mod; goto written
		:: answered && gone -> forget(); goto ask /* and the record with its lease */
		:: answered && !ok && !gone -> forget()
		:: !answered && op == STEP -> forget();
			if :: goto write :: ust = WORKING; upt = 1; op = 0; goto working fi
		:: !answered && op != STEP -> forget(); doubt = 1; goto write
		fi;
		/* The conditions failed: what was there then (commit.Amendment.found). */
		if
		:: op == COMMIT && FOUND_OUTCOME -> omod = mod; goto written
		:: op == COMMIT && mod == omod && attach ->
#ifndef NO_SAME               /* commit.Amendment.found: the record is put again, so that no copy is applied */
			if :: doubt -> op = SAME; goto write :: else fi;
#endif
			goto unmet
		:: op == SAME && st == DONE && by == id[c] -> op = COMMIT; omod = mod; goto written
		:: op == STEP && st == WORKING && by == id[c] && pt -> omod = mod; goto written
		:: op == RESOLVE && st == ust && by == id[c] && pt == upt -> ost = ust; opt = upt; omod = mod; goto written
		:: op == RELEASE && (!st && !AFTER_RELEASE || AFTER_RELEASE && st == RELEASED && by == id[c]) -> goto written
		:: (op == DROP || op == ABANDON) && st == LOST && by == id[c] -> omod = mod; goto written
		:: else ->
			if
			:: REGAINED -> omod = mod; doubt = 0; if :: op == RESOLVE || op == SAME -> goto written :: else -> goto write fi
			:: !REGAINED && op == RELEASE && doubt && valid[c] -> goto ask /* no other attempt can have begun before */
			:: !REGAINED && op != ABANDON && op != DROP && !(op == RELEASE && doubt && valid[c]) -> fenced(c); goto ask
			:: !REGAINED && (op == ABANDON || op == DROP) -> goto ask
			fi
		fi
	}
unmet: /* Commit has returned ErrConflict: the attempt continues */
	atomic {
		printf("caller %d gets: conflict\n", c);
		refused[c] = 1; attach = 0; op = 0; doubt = 0; ends[c] = 0; busy[c] = 1; goto working
	}
written:
	atomic {
		if
		:: op == STEP -> opt = 1; op = 0; goto working
		:: op == SAME -> goto unmet
		:: op == RESOLVE -> ust = 0; upt = 0; op = then; then = 0; goto write
		:: op == DROP ->
#ifndef NO_DROP_KNOWN         /* idempotency.ownRecord.change: the attempt knows the revision of its own drop */
			ost = LOST;
#else
			omod = omod - 1;
#endif
			op = 0; dropped = 1; goto late_end
		:: op == COMMIT -> if :: outcome != id[c] -> bad_told = 1 :: else fi; runs[c] = 0; printf("caller %d: the outcome is recorded\n", c); goto ask
		:: op == RELEASE || op == ABANDON -> runs[c] = 0; goto ask
		fi
	}
done:	/* Close waits for the attempts, and ends the session */
	if
	:: atomic { valid[c] = 0; alive[c] = 0; pmod[c] = 0; printf("session %d is closed\n", c) }
	:: true
	fi
}

/* A lease of a record ends, and the record with it: the attempt is forgotten. */
inline drop_record(c) {
	if
	:: (st == WORKING || st == LOST) && OWNER(by) == c -> st = 0; by = 0; pt = 0; mod = 0; ran = 0; strict = 0; pointed = 0;
		fellout[0] = 1; fellout[1] = 1; fellout[N-1] = 1 /* of a claim over it, too */
	:: else
	fi;
	fellout[c] = 1 /* also if it is not there while a claim over it is taken back */
}

inline end_session(c) {
	printf("etcd: the lease of session %d ends\n", c); alive[c] = 0; pmod[c] = 0;
#ifdef NO_RECORD_LEASE        /* idempotency.claim.send: it goes with the session */
	if :: (st == WORKING || st == LOST) && OWNER(by) == c -> st = 0; by = 0; pt = 0; mod = 0 :: else fi
#endif
}

#ifdef NO_RECORD_TRUST        /* idempotency.ground.Valid: the attempt trusts its record's lease as well */
#define WARN(c)
#else
#define WARN(c) runs[c] = 0
#endif

proctype Session(byte c) {
end:	do
	/* the deadline passes: no attempt of this session is trusted any more; then etcd ends the lease */
	:: atomic { valid[c] && alive[c] && losses > 0 -> losses--; valid[c] = 0; runs[c] = 0; printf("session %d: the deadline has passed\n", c) }
	:: d_step { alive[c] && !valid[c] -> end_session(c) }
#ifdef NO_SESSION_TRUST       /* lease.Lease.Valid: ends before the lease; without, etcd is first */
	:: d_step { alive[c] && valid[c] && losses > 0 -> losses--; end_session(c) }
#endif
	/* the same, of its work lease */
	:: atomic { wvalid[c] && wlosses > 0 -> wlosses--; wvalid[c] = 0; WARN(c); printf("work lease %d: the deadline has passed\n", c) }
	:: d_step { work[c] && !wvalid[c] -> work[c] = 0; printf("etcd: work lease %d ends\n", c); drop_record(c) }
#if HANDS > 0
	:: d_step { alive[c] && hands > 0 -> hands--; byhand = 1; printf("a hand deletes presence key %d\n", c); alive[c] = 0; pmod[c] = 0 }
#endif
	:: atomic { !alive[c] && valid[c] -> valid[c] = 0; runs[c] = 0 }
	od
}

#if HANDS > 0
proctype Hand() {
end:	do
	:: d_step { hands > 0 && st == WORKING -> hands--; byhand = 1; printf("a hand deletes the record\n"); st = 0; by = 0; pt = 0; mod = 0 }
	od
}
#endif

#if RESOLVES > 0
#ifdef NO_SPARES              /* idempotency.change.spares: NotDone waits for the process of the lost attempt */
#define SPARED(id) true
#else
#define SPARED(id) (!alive[OWNER(id)])
#endif
proctype Operator() {
	byte n, at; mtype to; bool point;
end:	do
	:: atomic { n < RESOLVES && NO_OUTCOME ->
		at = mod; point = pt; judged = by; n++;
		if
		:: to = DONE; printf("operator: it was done\n")
		:: SPARED(by) -> to = RELEASED; printf("operator: it was not done\n")
		fi }
again:		atomic {
			m.kind = AMEND; m.mod = at; m.st = to; m.by = OPERATOR; m.pt = (to == RELEASED -> point : 0);
			call();
			if
			:: answered -> forget(); at = 0; to = 0; point = 0
			:: !answered -> forget(); goto again
			fi
		}
	od
}
#endif

proctype Network() {
end:	do
	:: atomic { late.kind -> copy(m, late); clear(late); printf("network: a late copy arrives\n");
		d_step { apply(); clear(m) } forget() }
#ifdef ATTACH
	:: atomic { !met -> met = 1; printf("the condition of Attach is met\n") }
#endif
	od
}

/* ---- what must hold ---- */

#ifdef NO_GUARD_PREFIX        /* idempotency.Attempt.Guard: by what the record begins with; without, by its revision */
#define NAMED(c) (mod == first_mod[c])
#else
#define NAMED(c) (st == WORKING && by == id[c])
#endif
#ifdef NO_GUARD_PRESENCE      /* idempotency.Attempt.Guard: and by the presence key */
#define GUARD(c) (id[c] && NAMED(c))
#else
#define GUARD(c) (id[c] && NAMED(c) && alive[c])
#endif
#define ANY(p) (p(0) || p(1) || p(N-1))

#define RUNS_BESIDE(c)  (runs[c] && (c != 0 && runs[0] || c != 1 && runs[1] || c != N-1 && runs[N-1]))
#define LEFT_BEHIND(c)  (GUARD(c) && judged == id[c])
#define UNGUARDED(c)    (runs[c] && !ends[c] && !GUARD(c))
#define IN_VAIN(c)      (refused[c] && st == DONE && by == id[c] && pt)

proctype Monitor() {
	bool two_run, outcome_changed, told_in_vain, fenced_in_vain, unknown_in_vain, ran_twice, two_at_work, point_lost,
		guard_lost, guard_in_vain, recorded_in_vain, key_leaked;
	if
	:: ANY(RUNS_BESIDE) && !byhand -> assert(two_run)
	:: outcome && (st != DONE || by != outcome) -> assert(outcome_changed)
	:: bad_told -> assert(told_in_vain)
	:: bad_fenced -> assert(fenced_in_vain)
	:: bad_unknown -> assert(unknown_in_vain)
	:: bad_ran -> assert(ran_twice)
	:: bad_work -> assert(two_at_work)
	:: bad_point -> assert(point_lost)
	:: ANY(UNGUARDED) && !byhand -> assert(guard_lost)
	:: ANY(LEFT_BEHIND) -> assert(guard_in_vain)
	:: ANY(IN_VAIN) -> assert(recorded_in_vain)
	/* when nothing is left to happen */
	:: timeout ->
		if
		:: IN_PROGRESS -> assert(key_leaked)
		:: else
		fi
	fi;
end:	false
}

init {
	d_step {
		x = 0;
		do
		:: x < N -> alive[x] = 1; pmod[x] = 1; fence[x] = 1; work[x] = 1; valid[x] = 1; wvalid[x] = 1; x++
		:: else -> break
		od;
		x = 0
	};
	atomic {
		run Caller(0); run Caller(1); run Session(0); run Session(1);
#if N > 2
		run Caller(2); run Session(2);
#endif
#if RESOLVES > 0
		run Operator();
#endif
#if HANDS > 0
		run Hand();
#endif
		run Network(); run Monitor()
	}
}
