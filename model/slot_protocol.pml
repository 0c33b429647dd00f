/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the rows of a batch are claimed, owned, written, counted and completed by workers of which
 * one may die at any step: the protocol of src/memory/slot.h and src/memory/control.h, for the model checker
 * Spin. scripts/check_model.sh runs it; model/README.md tells what comes out. What is checked:
 *
 *   - Main always ends, with all batches delivered: no end state is invalid.
 *   - A row is written by its owner, and never once its batch is complete.
 *   - Every row is counted once.
 *   - A batch is collated once, or again after a completer that died before the batch was complete.
 *   - A batch is handed out once, in order, and all of its rows are of its generation.
 *
 * Who is who:
 *
 *   Main         Impl::publish_more, wait_for_batch and deliver; Slot::publish, Control::publish
 *   Worker       Worker::loop, work, take_over and complete; Control::claim, Filler::fill
 *   Supervisor   Watch::on_death; Control::disown, Slot::disown
 *   Fate         nobody: it ends a worker
 *
 * A step of the model is one atomic operation of the C++, and what the process then does to its own
 * variables: between two steps others may run, and death may come. Where it differs:
 *
 *   - Memory is sequentially consistent here. What the C++ orders with acquire and release is taken
 *     to be in order; two broken copies show what an order is needed for (BROKEN_LOAD_BEFORE_DONE,
 *     BROKEN_PUBLISH_OPENS_FIRST).
 *   - Nobody sleeps: who has nothing to do is blocked until there is something. Lost wake-ups are
 *     not a matter of this model. Nor are errors, cancelled epochs, and the layout of rows.
 *   - A row is written in one step. A row torn by death is as good as one that was not written.
 *   - Workers are alike, and so are slots before their first use: without loss of generality it is
 *     worker 0 that dies (first), and slot 0 that is used first.
 *
 * With one of the BROKEN_ names of broken.pml defined, one thing is done wrong, and Spin must find
 * an error. The names in capitals that broken.pml defines are the places where that happens.
 */

#ifndef BATCHES
#define BATCHES 3 /* the third uses a slot again, and a place of the ring */
#endif
#ifndef DEATHS
#define DEATHS 1 /* at most; 1 or 2 */
#endif
#ifndef FIRST
#define FIRST 0 /* the generation of the first batch */
#endif
#define WORKERS 2
#define SLOTS 2
#define RING 2
#define ROWS 2

/* The first and the last batch may have one row, so that num_samples changes both ways. */
#define MAY_BE_SMALL(batch) ((batch) == 0 || (batch) == BATCHES - 1)

/* The word of a row: generation, owner (0 nobody, w + 1 worker w), state. */
#define PENDING 0
#define FINAL 1
#define ROW(batch, owner, state) (((batch) + FIRST) << 3 | (owner) << 1 | (state))

/* The other words: generation, and the next row (ticket), a count (done) or owner (completer). */
#define WORD(batch, low) (((batch) + FIRST) << 2 | (low))
#define BATCH_OF(word) (((word) >> 2) - FIRST)
#define LOW(word) ((word) & 3)
#define NO_ROW 3

#define OPEN 0
#define READY 1

#include "broken.pml"

/* All of it is zero at first, as in the C++. */
typedef Slot {
  byte ticket;
  byte num_samples;
  byte row[ROW_WORDS];
  byte done[WORKERS]; /* written by its worker, or by the supervisor while that one is dead */
  byte completer;
  bit status;
  byte data[ROWS] /* ghost: of each row, 1 + the batch whose sample was written last */
}

Slot slot[SLOTS];
byte ring[RING];
byte head, published;
bit stop;

bit dead[WORKERS]; /* what waitpid tells the supervisor; until the replacement is forked */
chan death = [0] of {byte};

/* Ghost: how far each batch is. 0: incomplete; w + 1: worker w collates it. */
#define COMPLETE 3
#define DELIVERED 4
byte phase[BATCHES];

/* Of the slot s of the process at hand. */
#define SIZE slot[s].num_samples
#define COUNT_OF(w) (BATCH_OF(slot[s].done[w]) == b -> LOW(slot[s].done[w]) : 0)
#define IS_OPEN_BATCH(b) \
  (phase[b] < COMPLETE && BATCH_OF(slot[s].ticket) == b && slot[s].status == OPEN)
#define ALL_ROWS_ARE_OF(b) \
  (slot[s].data[0] == b + 1 && (SIZE == 1 || slot[s].data[1] == b + 1))

/* ---- worker ---- */

/* Control::claim. Leaves with rows row .. last - 1 of batch b in slot s to try. */
inline claim() {
  do
  :: if
     /* head and published. To load both at once loses nothing: published only grows, and a head
        that is out of date is had by waiting after this step. To be blocked is to sleep. */
     :: atomic { published > head -> b = head }
     :: atomic { stop -> goto ended }
     fi;
     s = ring[b % RING];
     ticket = slot[s].ticket;
     if
     :: atomic { BATCH_OF(ticket) == b && LOW(ticket) < SIZE -> /* num_samples */
          if
          :: last = LOW(ticket) + 1
          :: SIZE - LOW(ticket) > 1 -> last = LOW(ticket) + 2
          fi
        }
        if /* the compare-exchange */
        :: atomic { TICKET_IS_STILL(ticket) ->
             slot[s].ticket = slot[s].ticket - LOW(ticket) + last;
             row = LOW(ticket);
             ticket = 0;
             break
           }
        :: atomic { !TICKET_IS_STILL(ticket) -> forget() }
        fi
     :: atomic { !(BATCH_OF(ticket) == b && LOW(ticket) < SIZE) -> s = 0; ticket = 0 }
        atomic { /* Control::advance */
          if
          :: head == b -> head++
          :: else
          fi;
          b = 0
        }
     fi
  od
}

inline next_row() {
  row++;
  if
  :: row == last -> row = 0; last = 0; break
  :: else
  fi
}

/* Filler::own. There must be a row to try. */
inline own() {
  do
  :: atomic { ROW_IS_FREE ->
       slot[s].row[AT(row)] = ROW(b, me + 1, PENDING);
       unwritten = unwritten | 1 << row;
       unsettled = unsettled | 1 << row;
       uncounted++;
       next_row()
     }
  :: atomic { !ROW_IS_FREE -> next_row() } /* another was first, or the generation is over */
  od
}

inline write(which) {
  unwritten = unwritten & ~(1 << which);
  assert(IS_OPEN_BATCH(b));
  slot[s].data[which] = b + 1
}

inline settle(which) {
  unsettled = unsettled & ~(1 << which);
  slot[s].row[AT(which)] = ROW(b, me + 1, FINAL)
}

/* The rest of Filler::fill: all own rows are written, then settled; then the first half of
   Slot::finish. Only this worker writes its count, so that loading that is no step of its own.
   `left` is then what others must have counted. Uncounted rows keep the batch from being completed,
   so that num_samples is still that of the batch. */
inline fill_and_count() {
  do
  :: atomic { MAY_WRITE && unwritten & 1 -> write(0) }
  :: atomic { MAY_WRITE && unwritten == 2 -> write(1) }
  :: atomic { MAY_SETTLE && unsettled & 1 -> settle(0); LOAD_EARLY }
  :: atomic { MAY_SETTLE && unsettled == 2 -> settle(1); LOAD_EARLY }
  :: atomic { MAY_COUNT && uncounted > 0 ->
       assert(IS_OPEN_BATCH(b));
       slot[s].done[me] = WORD(b, COUNT_OF(me) + uncounted);
       left = SIZE - COUNT_OF(me);
       assert(COUNT_OF(1 - me) <= left);
       uncounted = 0;
       if
       :: unwritten == 0 && unsettled == 0 -> break
       :: else
       fi
     }
  :: atomic { unwritten == 0 && unsettled == 0 && uncounted == 0 -> break } /* got no row */
  od
}

/* The rest of Slot::finish, or Slot::take_completion (all_done, elect), and Worker::complete. */
inline complete_if_last(then_b) {
  if
  :: atomic { left != COUNT_OF_OTHERS -> left = -1; s = 0; b = then_b }
  :: atomic { left == COUNT_OF_OTHERS -> left = -1 }
     if
     :: atomic { !NOBODY_COMPLETES -> s = 0; b = then_b }
     :: atomic { NOBODY_COMPLETES ->
          slot[s].completer = WORD(b, me + 1);
          assert(phase[b] == 0);
          phase[b] = me + 1
        }
        atomic { /* collate, Control::complete */
          assert(phase[b] == me + 1 && IS_OPEN_BATCH(b) && ALL_ROWS_ARE_OF(b));
          slot[s].status = READY;
          phase[b] = COMPLETE;
          s = 0; b = then_b
        }
     fi
  fi
}

/* Worker::take_over, Control::for_each_open. The status is loaded last: while that is open, the
   ticket and num_samples loaded before are those of the batch. */
inline take_over() {
  atomic { end = published; b = (end > RING -> end - RING : 0) }
  do
  :: atomic { b == end -> b = 0; end = 0; break }
  :: atomic { b < end -> s = ring[b % RING] }
     ticket = slot[s].ticket;
     last = SIZE;
     if
     :: atomic { BATCH_OF(ticket) == b && IS_STILL_OPEN ->
          last = (LOW(ticket) < last -> LOW(ticket) : last);
          ticket = 0
        }
        if
        :: last > 0 -> own(); fill_and_count()
        :: last == 0
        fi;
        if
        :: atomic { left < 0 && CHECKS -> left = SIZE - COUNT_OF(me) } /* take_completion */
        :: left >= 0 || !CHECKS
        fi;
        complete_if_last(b + 1)
     :: atomic { !(BATCH_OF(ticket) == b && IS_STILL_OPEN) -> s = 0; ticket = 0; last = 0; b++ }
     fi
  od
}

inline forget() {
  b = 0; s = 0; ticket = 0; row = 0; last = 0; end = 0;
  unwritten = 0; unsettled = 0; uncounted = 0; left = -1
}

proctype Worker(byte me) {
  byte b, s, ticket, row, last, end;
  byte unwritten, unsettled, uncounted; /* own rows: two sets, and a number */
  short left = -1;
  bit replacement;
begin:
  {
    if
    :: replacement -> take_over()
    :: !replacement
    fi;
    do
    :: claim(); own(); fill_and_count(); complete_if_last(0)
    od
  } unless {
    atomic {
      death ? eval(me) ->
      dead[me] = 1;
      if
      :: b < BATCHES && phase[b] == me + 1 -> phase[b] = 0
      :: else
      fi;
      forget();
      replacement = 1
    }
  }
  if
  :: !dead[me] -> goto begin
  :: stop
  fi;
ended:
  skip
}

/* That nobody dies is a choice of its own, lest a death helps out where all are stuck. */
active proctype Fate() {
  if
  :: death ! 0
#if DEATHS > 1
     if
     :: death ! 0
     :: death ! 1
     :: skip
     fi
#endif
  :: skip
  fi
}

/* ---- supervisor ---- */

/* Slot::disown, the first half; disown_completer in broken.pml is the second. */
inline disown_rows(w) {
  do
  :: atomic { row >= SIZE -> row = 0; break }
  :: row < SIZE ->
     if
     :: slot[s].row[AT(row)] == ROW(b, w + 1, PENDING) -> atomic { FREE_ROW; row++ }
     :: atomic { slot[s].row[AT(row)] == ROW(b, w + 1, FINAL) -> row++; settled++ }
     :: atomic { slot[s].row[AT(row)] >> 1 != ROW(b, w + 1, 0) >> 1 -> row++ }
     fi
  od;
  if
  :: atomic { settled > 0 -> SET_COUNT(w); settled = 0 }
  :: settled == 0
  fi
}

/* Control::disown, and the fork */
inline replace(w) {
  atomic { end = published; b = (end > RING -> end - RING : 0) }
  do
  :: atomic { b == end -> b = 0; end = 0; dead[w] = 0; break }
  :: atomic { b < end -> s = ring[b % RING] }
     if
     :: BATCH_OF(slot[s].ticket) == b -> disown_rows(w); disown_completer(w)
     :: BATCH_OF(slot[s].ticket) != b
     fi;
     atomic { s = 0; b++ }
  od
}

active proctype Supervisor() {
  byte b, s, row, settled, end;
  do
  :: IS_THOUGHT_DEAD(0) -> replace(0)
#if DEATHS > 1
  :: IS_THOUGHT_DEAD(1) -> replace(1)
#endif
  :: stop -> break
  od
}

/* ---- main ---- */

inline publish() {
  slot[s].ticket = CLOSED(slot[s].ticket);
  if
  :: SIZE = 2
  :: MAY_BE_SMALL(count) -> SIZE = 1
  fi;
  OPEN_EARLY;
  slot[s].row[AT(0)] = ROW(count, 0, PENDING);
  if
  :: SIZE > 1 -> slot[s].row[AT(1)] = ROW(count, 0, PENDING)
  :: else
  fi;
  slot[s].completer = WORD(count, 0);
  slot[s].status = OPEN;
  slot[s].ticket = WORD(count, 0);
  ring[count % RING] = s;
  atomic { s = 0; count++; published = count }
}

/* A slot and a place of the ring that were never used nobody finds before the last store: to
   publish them is one step. What was handed out is free once the consumer drops it. That may be at
   any time: Main publishes and hands out in any order, and takes any slot that it has handed out. */
active proctype Main() {
  byte count, next, s;
  bit busy[SLOTS];
  atomic { run Worker(0); run Worker(1) }
  do
  :: atomic { count < BATCHES && !(busy[0] && busy[1]) ->
       if
       :: !busy[0] -> s = 0
       :: !busy[1] && count > 0 -> s = 1
       fi;
       busy[s] = 1
     }
     if
     :: atomic { count < RING && SIZE == 0 -> publish() }
     :: count >= RING || SIZE > 0 -> publish()
     fi
  :: atomic { next < count && slot[ring[next % RING]].status != OPEN ->
       s = ring[next % RING];
       assert(phase[next] == COMPLETE && ALL_ROWS_ARE_OF(next));
       phase[next] = DELIVERED;
       busy[s] = 0;
       s = 0; next++
     }
  :: next == BATCHES -> break
  od;
  stop = 1
}
