----------------------------- MODULE FileFence -----------------------------
(***************************************************************************)
(* The fence of the file World, where there is no compare-and-set.         *)
(*                                                                         *)
(* Every claim has a segment file of its own, numbered by its epoch. What  *)
(* a claimer does: (1) create the file, exclusively, or take a file that   *)
(* its maker left without a header; lock it; (2) look whether it is still  *)
(* the newest file and still without a header; (3) look which older        *)
(* segment has a header, and how long that is, after a bounded wait for    *)
(* its lock; (4) write `previous = (that epoch, that length)` and its      *)
(* claim record; (5) look for a newer file; (6) only then be the driver.   *)
(* A writer: (1) lock the segment, (2) find it to be the newest file,      *)
(* (3) write and sync, (4) look for a newer file, (5) only then            *)
(* acknowledge. So of a writer and a claimer one always sees the other.    *)
(*                                                                         *)
(* Readers begin at the newest segment with a header and follow            *)
(* `previous`; every file that is not on that chain is void. A file that   *)
(* is locked and has no header holds up everybody but a take-over by       *)
(* name, which passes it and makes the next one.                           *)
(*                                                                         *)
(* Each step may be the last before a stop of hours, or for ever. What is  *)
(* not modelled: power, which takes back what was not synced; deletion;    *)
(* a write that is half done (the claimer reads whole frames only).        *)
(***************************************************************************)
EXTENDS Naturals, Sequences, TLC

CONSTANTS
  P,            \* processes; each claims, drives, sends
  MaxEpoch,     \* segments
  MaxWrites,    \* appends that one process tries, as a driver or as a sender
  \* The switches are TRUE in the design; each FALSE is a mutant that has to break an invariant.
  CreateFirst,  \* the claimer makes its file before it looks at the older one
  CheckChain,   \* with the lock, a claimer looks whether somebody has finished its file, or passed it
  AdoptLocked,  \* a file without a header is taken over under its lock only
  LookAgain,    \* the claimer looks for a newer file before it calls itself the driver
  LookAfter,    \* the writer looks for a newer file before it acknowledges
  WriteLocked   \* the writer holds the segment's lock

VARIABLES
  made,   \* made[e]: the file exists
  head,   \* head[e]: None, or what its header says: [prev, cut]
  body,   \* body[e]: the frames behind the header
  lock,   \* lock[e]: who holds the file's lock, or Free
  acked,  \* what somebody was told is durable: pairs of a place in the log and a frame
  me      \* me[p]: where process p is, and what it has read

vars == <<made, head, body, lock, acked, me>>

E == 1..MaxEpoch
Free == "free"
None == [prev |-> 0, cut |-> 0]
First == [prev |-> 0, cut |-> 1]  \* the header of the segment that the session was created with
Idle(n) == [at |-> "idle", who |-> "", how |-> "", seg |-> 0, older |-> 0, cut |-> 0, n |-> n]

Init ==
  /\ made = [e \in E |-> e = 1]
  /\ head = [e \in E |-> IF e = 1 THEN First ELSE None]
  /\ body = [e \in E |-> <<>>]
  /\ lock = [e \in E |-> Free]
  /\ acked = {}
  /\ me = [p \in P |-> Idle(0)]

Newest == CHOOSE e \in E : made[e] /\ \A f \in E : made[f] => f <= e
Begun(limit) == {e \in 1..limit : head[e] # None}
Last(set) == CHOOSE e \in set : \A f \in set : f <= e
Top == Last(Begun(MaxEpoch))
Passed(e) == e < MaxEpoch /\ made[e + 1]

(* The log as the header of segment e leaves it, up to c frames of e.      *)
RECURSIVE Upto(_, _)
Before(e) == IF head[e].prev = 0 THEN <<>> ELSE Upto(head[e].prev, head[e].cut)
Upto(e, c) == Before(e) \o SubSeq(body[e], 1, c)
Log == Upto(Top, Len(body[Top]))

At(p, where) == me[p].at = where
Go(p, where) == me' = [me EXCEPT ![p].at = where]
GiveUp(p) == me' = [me EXCEPT ![p] = Idle(@.n)]
Freed(p) == [e \in E |-> IF lock[e] = p THEN Free ELSE lock[e]]

(* ---- claiming --------------------------------------------------------- *)

Early(p) == ~CreateFirst /\ me[p].how = "make"
Target(p, who, how, seg, where) ==
  /\ seg <= MaxEpoch
  /\ me' = [me EXCEPT ![p] = [@ EXCEPT !.at = where, !.who = who, !.how = how, !.seg = seg]]
  /\ UNCHANGED <<made, head, body, lock, acked>>
Make(p) == Target(p, "driver", "make", Newest + 1, IF CreateFirst THEN "create" ELSE "older")

(* A claimer, when nobody else is at it ...                                *)
Start(p) == At(p, "idle") /\ Newest = Top /\ Make(p)
(* ... a take-over by name, which passes one who is ...                    *)
Pass(p) == At(p, "idle") /\ Newest > Top /\ lock[Newest] # Free /\ Make(p)
(* ... and who finds a file without a header, a driver or a sender.        *)
Adopt(p) ==
  /\ At(p, "idle")
  /\ Newest > Top
  /\ \E who \in {"driver", "sender"} : Target(p, who, "adopt", Newest, "lock")

Create(p) ==
  /\ At(p, "create")
  /\ IF made[me[p].seg]
       THEN GiveUp(p) /\ UNCHANGED made
       ELSE made' = [made EXCEPT ![me[p].seg] = TRUE] /\ Go(p, "lock")
  /\ UNCHANGED <<head, body, lock, acked>>

LockFile(p) ==
  /\ At(p, "lock")
  /\ LET e == me[p].seg  next == IF Early(p) THEN "head" ELSE "list" IN
     IF lock[e] = Free
       THEN lock' = [lock EXCEPT ![e] = p] /\ Go(p, next)
       ELSE /\ IF ~AdoptLocked /\ me[p].how = "adopt" THEN Go(p, next) ELSE GiveUp(p)
            /\ UNCHANGED lock
  /\ UNCHANGED <<made, head, body, acked>>

(* Looking has two halves, with anything in between: which files there     *)
(* are, and which of them have begun.                                      *)
Checks(p) == CheckChain \/ me[p].how = "adopt"

List(p) ==
  /\ At(p, "list")
  /\ IF Checks(p) /\ Newest # me[p].seg
       THEN GiveUp(p) /\ lock' = Freed(p)
       ELSE Go(p, "older") /\ UNCHANGED lock
  /\ UNCHANGED <<made, head, body, acked>>

Older(p) ==
  /\ At(p, "older")
  /\ IF Checks(p) /\ ~Early(p) /\ head[me[p].seg] # None
       THEN GiveUp(p) /\ lock' = Freed(p)
       ELSE /\ me' = [me EXCEPT ![p] = [@ EXCEPT !.at = "cut", !.older = Last(Begun(me[p].seg - 1))]]
            /\ UNCHANGED lock
  /\ UNCHANGED <<made, head, body, acked>>

(* With the older segment's lock this is one step to all others; without,  *)
(* its writer was stopped and may go on at any time. The same here.        *)
Cut(p) ==
  /\ At(p, "cut")
  /\ me' = [me EXCEPT ![p] = [@ EXCEPT !.at = IF Early(p) THEN "create" ELSE "head",
                                       !.cut = Len(body[me[p].older])]]
  /\ UNCHANGED <<made, head, body, lock, acked>>

Claim(p) == <<"claim", me[p].seg, p, 0>>

Header(p) ==
  /\ At(p, "head")
  /\ head' = [head EXCEPT ![me[p].seg] = [prev |-> me[p].older, cut |-> me[p].cut]]
  /\ body' = [body EXCEPT ![me[p].seg] = IF me[p].who = "driver" THEN <<Claim(p)>> ELSE <<>>]
  /\ Go(p, "confirm")
  /\ UNCHANGED <<made, lock, acked>>

Confirm(p) ==
  /\ At(p, "confirm")
  /\ IF (LookAgain /\ Passed(me[p].seg)) \/ me[p].who = "sender"
       THEN GiveUp(p) /\ UNCHANGED acked
       ELSE /\ Go(p, "own")
            /\ acked' = acked \cup {<<Len(Before(me[p].seg)) + 1, Claim(p)>>}
  /\ lock' = Freed(p)
  /\ UNCHANGED <<made, head, body>>

(* ---- writing ---------------------------------------------------------- *)

(* A driver writes to the segment of its claim, a sender to the newest.    *)
LockSegment(p) ==
  /\ At(p, "idle") \/ At(p, "own")
  /\ me[p].n < MaxWrites
  /\ LET e == IF At(p, "own") THEN me[p].seg ELSE Top
         who == IF At(p, "own") THEN "driver" ELSE "sender" IN
     /\ lock[e] = Free \/ ~WriteLocked
     /\ lock' = [lock EXCEPT ![e] = IF @ = Free THEN p ELSE @]
     /\ me' = [me EXCEPT ![p] = [@ EXCEPT !.at = "find", !.who = who, !.seg = e]]
  /\ UNCHANGED <<made, head, body, acked>>

Find(p) ==
  /\ At(p, "find")
  /\ IF Newest = me[p].seg
       THEN /\ me' = [me EXCEPT ![p] = [@ EXCEPT !.at = "write", !.cut = Len(body[me[p].seg])]]
            /\ UNCHANGED lock
       ELSE GiveUp(p) /\ lock' = Freed(p)
  /\ UNCHANGED <<made, head, body, acked>>

Frame(p, n) == IF me[p].who = "driver" THEN <<"work", me[p].seg, p, n>> ELSE <<"message", 0, p, n>>

Write(p) ==
  /\ At(p, "write")
  /\ body' = [body EXCEPT ![me[p].seg] = Append(SubSeq(@, 1, me[p].cut), Frame(p, me[p].n + 1))]
  /\ me' = [me EXCEPT ![p] = [@ EXCEPT !.at = "look", !.n = @ + 1]]
  /\ UNCHANGED <<made, head, lock, acked>>

Look(p) ==
  /\ At(p, "look")
  /\ LET e == me[p].seg  n == me[p].n IN
     IF LookAfter /\ Passed(e)
       THEN me' = [me EXCEPT ![p] = Idle(n)] /\ UNCHANGED acked
       ELSE /\ acked' = acked \cup {<<Len(Before(e)) + me[p].cut + 1, Frame(p, n)>>}
            /\ me' = [me EXCEPT ![p] = IF @.who = "driver"
                        THEN [Idle(n) EXCEPT !.at = "own", !.who = "driver", !.seg = e]
                        ELSE Idle(n)]
  /\ lock' = Freed(p)
  /\ UNCHANGED <<made, head, body>>

(* A death frees the locks; all else stays as it is on disk.               *)
Crash(p) ==
  /\ ~At(p, "idle")
  /\ GiveUp(p)
  /\ lock' = Freed(p)
  /\ UNCHANGED <<made, head, body, acked>>

Next ==
  \E p \in P :
    \/ Start(p) \/ Pass(p) \/ Adopt(p) \/ Create(p) \/ LockFile(p) \/ List(p) \/ Older(p) \/ Cut(p)
    \/ Header(p) \/ Confirm(p)
    \/ LockSegment(p) \/ Find(p) \/ Write(p) \/ Look(p)
    \/ Crash(p)

Spec == Init /\ [][Next]_vars
Alike == Permutations(P)

(***************************************************************************)
(* Invariants                                                              *)
(***************************************************************************)

(* W1, W2: what was acknowledged, a claim too, stands where it was said to *)
(* stand, for every reader, for ever. So the chains that two readers       *)
(* follow at different times agree on all of it.                           *)
NothingAcknowledgedIsLost ==
  \A pair \in acked : pair[1] <= Len(Log) /\ Log[pair[1]] = pair[2]

(* A header never names frames that its older segment does not have.       *)
NoHole ==
  \A e \in E : head[e].prev # 0 => head[e].cut <= Len(body[head[e].prev])

(* I6: what a driver wrote stands under its own claim, the last one.       *)
Claims(i) == {j \in 1..i : Log[j][1] = "claim"}
OneWriter ==
  \A i \in 1..Len(Log) : Log[i][1] = "work" =>
    Claims(i) # {} /\ Log[Last(Claims(i))][2] = Log[i][2]

(* W3 *)
EpochsGrow ==
  \A i, j \in Claims(Len(Log)) : i < j => Log[i][2] < Log[j][2]
=============================================================================
