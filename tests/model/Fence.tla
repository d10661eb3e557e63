------------------------------- MODULE Fence -------------------------------
(***************************************************************************)
(* Claim, append, parking and waking, as every World has to do them.       *)
(*                                                                         *)
(* One session. A driver D works in two steps wherever a real one does:    *)
(* it reads the log, and later appends at the head that it has read. Any   *)
(* number of steps of others may lie between, which is how a driver that   *)
(* was stopped for hours looks. Leases are not modelled: a driver may take *)
(* over at any time, so whatever holds here holds for every lease.         *)
(*                                                                         *)
(* The switches are TRUE in the design; each FALSE is a mutant that has to *)
(* break an invariant.                                                     *)
(***************************************************************************)
EXTENDS Naturals, Sequences

CONSTANTS
  D,              \* drivers
  MaxLen,         \* length of the log at which the model stops
  CompareAndSet,  \* an append is refused unless the head is the expected one
  ClaimRecord,    \* a take-over appends a record (not only a row update)
  ParkByAppend,   \* parking is part of an append, so that it is compared, too
  WakeInCommit    \* accepting a message makes the session due in the same step

VARIABLES
  log,   \* sequence of [kind, by, epoch]; kind is "claim", "message", "work" or "done"
  row,   \* [due: BOOLEAN, owner, epoch]: the session's row
  pen,   \* pen[d] = [state, head, epoch]: what driver d believes
  wake   \* TRUE if an outside sender has committed its message but not yet the due time

vars == <<log, row, pen, wake>>

Nobody == "nobody"
Rest == [state |-> "rest", head |-> 0, epoch |-> 0]

Init ==
  /\ log = <<>>
  /\ row = [due |-> FALSE, owner |-> Nobody, epoch |-> 0]
  /\ pen = [d \in D |-> Rest]
  /\ wake = FALSE

Room == Len(log) < MaxLen
Fits(head) == ~CompareAndSet \/ head = Len(log)
Add(kind, by, epoch) == log' = Append(log, [kind |-> kind, by |-> by, epoch |-> epoch])

(* A sender outside: decides on the whole log and appends in one step; its *)
(* retries after a conflict are this action taken later.                   *)
Accept ==
  /\ Room
  /\ ~wake
  /\ Add("message", Nobody, 0)
  /\ IF WakeInCommit
       THEN row' = [row EXCEPT !.due = TRUE] /\ UNCHANGED wake
       ELSE wake' = TRUE /\ UNCHANGED row
  /\ UNCHANGED pen

WakeLater ==
  /\ wake
  /\ wake' = FALSE
  /\ row' = [row EXCEPT !.due = TRUE]
  /\ UNCHANGED <<log, pen>>

(* The sender dies between its two commits (only with WakeInCommit FALSE). *)
SenderDies == wake /\ wake' = FALSE /\ UNCHANGED <<log, row, pen>>

(* A driver looks at the row and the log ...                               *)
Look(d) ==
  /\ pen[d].state = "rest"
  /\ row.due
  /\ pen' = [pen EXCEPT ![d] = [state |-> "looked", head |-> Len(log), epoch |-> row.epoch + 1]]
  /\ UNCHANGED <<log, row, wake>>

(* ... and takes the session, whoever has it.                              *)
Claim(d) ==
  /\ pen[d].state = "looked"
  /\ Room
  /\ IF Fits(pen[d].head)
       THEN /\ IF ClaimRecord THEN Add("claim", d, pen[d].epoch) ELSE UNCHANGED log
            /\ row' = [row EXCEPT !.owner = d, !.epoch = pen[d].epoch]
            /\ pen' = [pen EXCEPT ![d].state = "drives",
                                  ![d].head = @ + (IF ClaimRecord THEN 1 ELSE 0)]
       ELSE /\ pen' = [pen EXCEPT ![d] = Rest]
            /\ UNCHANGED <<log, row>>
  /\ UNCHANGED wake

(* At a conflict a driver reads what is in between: a newer claim fences   *)
(* it for ever; a message only moves its head.                             *)
Newer(d) == \E i \in (pen[d].head + 1)..Len(log) : log[i].kind = "claim"
Conflicted(d) ==
  pen' = [pen EXCEPT ![d] = IF Newer(d) THEN Rest ELSE [@ EXCEPT !.head = Len(log)]]

Work(d) ==
  /\ pen[d].state = "drives"
  /\ Room
  /\ IF Fits(pen[d].head)
       THEN /\ Add("work", d, pen[d].epoch)
            /\ pen' = [pen EXCEPT ![d].head = Len(log) + 1]
       ELSE Conflicted(d) /\ UNCHANGED log
  /\ UNCHANGED <<row, wake>>

(* Everything that the driver has read is answered: park the session.      *)
Park(d) ==
  /\ pen[d].state = "drives"
  /\ Room
  /\ IF ParkByAppend
       THEN IF Fits(pen[d].head)
              THEN /\ Add("done", d, pen[d].epoch)
                   /\ row' = [row EXCEPT !.due = FALSE, !.owner = Nobody]
                   /\ pen' = [pen EXCEPT ![d] = Rest]
              ELSE Conflicted(d) /\ UNCHANGED <<log, row>>
       ELSE /\ row' = [row EXCEPT !.due = FALSE, !.owner = Nobody]
            /\ pen' = [pen EXCEPT ![d] = Rest]
            /\ UNCHANGED log
  /\ UNCHANGED wake

(* A driver dies: the row still names it, which is what a sweep looks for. *)
Crash(d) ==
  /\ pen[d].state # "rest"
  /\ pen' = [pen EXCEPT ![d] = Rest]
  /\ UNCHANGED <<log, row, wake>>

Next ==
  \/ Accept \/ WakeLater \/ SenderDies
  \/ \E d \in D : Look(d) \/ Claim(d) \/ Work(d) \/ Park(d) \/ Crash(d)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Invariants                                                              *)
(***************************************************************************)

Claims(i) == {j \in 1..i : log[j].kind = "claim"}
LastClaim(i) == CHOOSE j \in Claims(i) : \A k \in Claims(i) : k <= j

(* W2, I6: what a driver wrote stands under its own claim, the last one.   *)
OneWriter ==
  \A i \in 1..Len(log) : log[i].kind \in {"work", "done"} =>
    /\ Claims(i) # {}
    /\ log[LastClaim(i)].by = log[i].by
    /\ log[LastClaim(i)].epoch = log[i].epoch

(* W3: each claim has a larger epoch than all before it.                   *)
EpochsGrow ==
  \A i, j \in 1..Len(log) :
    (i < j /\ log[i].kind = "claim" /\ log[j].kind = "claim") => log[i].epoch < log[j].epoch

(* I2, C091: a message that no "done" follows is in sight of a worker: the *)
(* session is due (Look and Claim need nothing else), or its sender is     *)
(* about to make it so.                                                    *)
Answered(i) == \E j \in (i + 1)..Len(log) : log[j].kind = "done"
NoMessageForgotten ==
  \A i \in 1..Len(log) : (log[i].kind = "message" /\ ~Answered(i)) => (row.due \/ wake)
=============================================================================
