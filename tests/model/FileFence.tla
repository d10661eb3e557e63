----------------------------- MODULE FileFence -----------------------------
(***************************************************************************)
(* The fence of the file World, where there is no compare-and-set.         *)
(*                                                                         *)
(* Every claim has a segment file of its own, numbered by its epoch. What  *)
(* a claimer does: (1) create the segment, exclusively; (2) read how long  *)
(* the earlier segments are; (3) write those lengths, the cuts, into the   *)
(* header of its own. What a writer does: (1) write and sync a frame into  *)
(* the newest segment that it knows; (2) look for a newer one; (3) only    *)
(* then acknowledge. So of a writer and a claimer one always sees the      *)
(* other. Readers use an earlier segment up to the cut in a later header.  *)
(*                                                                         *)
(* Drivers keep writing to the segment of their claim. Senders are not     *)
(* drivers: they write to the newest segment under a lock that the kernel  *)
(* frees at death, so that two processes never write one segment at the    *)
(* same time. A claimer does not take that lock: it may be held by a       *)
(* process that was stopped.                                               *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
  P,            \* processes; each may drive, and send
  MaxEpoch,     \* segments
  MaxLen,       \* frames in a segment
  CreateFirst,  \* the claimer creates its segment before it reads the lengths
  LookAfter,    \* the writer looks for a newer segment before it acknowledges
  AllCuts       \* a header holds the cuts of all earlier segments, not only of the last one

VARIABLES
  made,    \* made[e]: the segment exists
  len,     \* len[e]: frames in it that are synced
  cuts,    \* cuts[e]: None, or the header of segment e: a function from earlier segments to lengths
  acked,   \* acked[e]: frames of it that somebody was told are durable
  lock,    \* who holds the segment lock, as [who, epoch], or Free
  pc,      \* pc[p]: where process p is
  seg,     \* seg[p]: the segment it works on
  seen     \* seen[p]: lengths that it has read as a claimer; or its own frame's number, as a writer

vars == <<made, len, cuts, acked, lock, pc, seg, seen>>

E == 1..MaxEpoch
None == [e \in {} |-> 0]
Free == 0
Zero == [e \in E |-> 0]

Init ==
  /\ made = [e \in E |-> e = 1]
  /\ len = Zero
  /\ cuts = [e \in E |-> None]
  /\ acked = Zero
  /\ lock = [e \in E |-> Free]
  /\ pc = [p \in P |-> "idle"]
  /\ seg = [p \in P |-> 0]
  /\ seen = [p \in P |-> Zero]

Top == CHOOSE e \in E : made[e] /\ \A f \in E : made[f] => f <= e
Superseded(e) == e < MaxEpoch /\ made[e + 1]
At(p, where) == pc[p] = where
Go(p, where) == pc' = [pc EXCEPT ![p] = where]

(* ---- writing, by a driver ("own") or by a sender (from "idle") -------- *)

(* A sender locks the newest segment. It goes back to idle afterwards.     *)
Lock(p) ==
  /\ At(p, "idle")
  /\ lock[Top] = Free
  /\ lock' = [lock EXCEPT ![Top] = p]
  /\ seg' = [seg EXCEPT ![p] = Top]
  /\ Go(p, "send")
  /\ UNCHANGED <<made, len, cuts, acked, seen>>

(* A driver locks the segment of its own claim, superseded or not.         *)
LockOwn(p) ==
  /\ At(p, "own")
  /\ lock[seg[p]] = Free
  /\ lock' = [lock EXCEPT ![seg[p]] = p]
  /\ Go(p, "drive")
  /\ UNCHANGED <<made, len, cuts, acked, seg, seen>>

Write(p) ==
  /\ At(p, "send") \/ At(p, "drive")
  /\ len[seg[p]] < MaxLen
  /\ len' = [len EXCEPT ![seg[p]] = @ + 1]
  /\ seen' = [seen EXCEPT ![p][seg[p]] = len[seg[p]] + 1]
  /\ Go(p, IF At(p, "send") THEN "sent" ELSE "driven")
  /\ UNCHANGED <<made, cuts, acked, lock, seg>>

Look(p) ==
  /\ At(p, "sent") \/ At(p, "driven")
  /\ IF LookAfter /\ Superseded(seg[p])
       THEN Go(p, "idle") /\ lock' = [lock EXCEPT ![seg[p]] = Free]
       ELSE Go(p, IF At(p, "sent") THEN "ack" ELSE "ackown") /\ UNCHANGED lock
  /\ UNCHANGED <<made, len, cuts, acked, seg, seen>>

Ack(p) ==
  /\ At(p, "ack") \/ At(p, "ackown")
  /\ acked' = [acked EXCEPT ![seg[p]] = seen[p][seg[p]]]
  /\ lock' = [lock EXCEPT ![seg[p]] = Free]
  /\ Go(p, IF At(p, "ack") THEN "idle" ELSE "own")
  /\ UNCHANGED <<made, len, cuts, seg, seen>>

(* ---- claiming --------------------------------------------------------- *)

Start(p) ==
  /\ At(p, "idle")
  /\ Top < MaxEpoch
  /\ seg' = [seg EXCEPT ![p] = Top + 1]
  /\ Go(p, IF CreateFirst THEN "create" ELSE "read")
  /\ UNCHANGED <<made, len, cuts, acked, lock, seen>>

Create(p) ==
  /\ At(p, "create")
  /\ IF made[seg[p]]
       THEN Go(p, "idle") /\ UNCHANGED made
       ELSE Go(p, IF CreateFirst THEN "read" ELSE "head") /\ made' = [made EXCEPT ![seg[p]] = TRUE]
  /\ UNCHANGED <<len, cuts, acked, lock, seg, seen>>

Read(p) ==
  /\ At(p, "read")
  /\ seen' = [seen EXCEPT ![p] = len]
  /\ Go(p, IF CreateFirst THEN "head" ELSE "create")
  /\ UNCHANGED <<made, len, cuts, acked, lock, seg>>

(* The header is a frame like any other: written, then checked for a newer *)
(* segment, here in one step.                                              *)
Header(p) ==
  /\ At(p, "head")
  /\ IF Superseded(seg[p])
       THEN Go(p, "idle") /\ UNCHANGED cuts
       ELSE /\ Go(p, "own")
            /\ LET before == IF AllCuts THEN 1..(seg[p] - 1) ELSE {seg[p] - 1}
               IN cuts' = [cuts EXCEPT ![seg[p]] = [e \in before |-> seen[p][e]]]
  /\ UNCHANGED <<made, len, acked, lock, seg, seen>>

(* A death frees the lock; all else stays as it is on disk.                *)
Crash(p) ==
  /\ ~At(p, "idle")
  /\ Go(p, "idle")
  /\ lock' = [e \in E |-> IF lock[e] = p THEN Free ELSE lock[e]]
  /\ UNCHANGED <<made, len, cuts, acked, seg, seen>>

Next ==
  \E p \in P :
    \/ Lock(p) \/ LockOwn(p) \/ Write(p) \/ Look(p) \/ Ack(p)
    \/ Start(p) \/ Create(p) \/ Read(p) \/ Header(p) \/ Crash(p)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Invariants                                                              *)
(***************************************************************************)

(* Where a header says how long an earlier segment is, readers stop there. *)
(* The first header that does so counts, for a later one can only be       *)
(* written by somebody who has read the log as that header leaves it.      *)
Headers(e) == {f \in E : f > e /\ e \in DOMAIN cuts[f]}

(* W1, W2: what was acknowledged is never cut off.                         *)
NothingAcknowledgedIsCut ==
  \A e \in E : \A f \in Headers(e) : acked[e] <= cuts[f][e]

(* Readers agree for ever: two headers never cut one segment differently   *)
(* below what is visible. A claimer that died left no header, and the next *)
(* one cuts what it left, too: hence all cuts.                             *)
EverySegmentBeforeAHeaderIsCut ==
  \A f \in E : DOMAIN cuts[f] # {} => \A e \in 1..(f - 1) : Headers(e) # {}
=============================================================================
