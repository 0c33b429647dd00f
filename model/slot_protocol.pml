/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How rows of a batch are claimed, owned, written, counted and completed by workers of which one
 * may die at any step, as src/ does it; for the model checker Spin. scripts/check_model.sh runs it,
 * model/README.md says what comes out. What is checked:
 *
 *   - Main always ends, all batches delivered: there is no invalid end state, and no cycle.
 *   - A row is written by its one owner, and never once its batch is complete.
 *   - Every row is counted once.
 *   - A batch is collated once, or again after a collator that died before it was complete.
 *   - A batch is handed out once, in order, and all its rows are of its generation.
 *
 * What is what:
 *
 *   Main         Impl::publish_more, wait_for_batch and deliver; Slot::publish, Control::publish
 *   Worker       Worker::loop, work, take_over and complete; Filler::fill
 *   Supervisor   Watch::on_death, Control::disown
 *   Fate         nobody: it ends a worker
 *
 * One step of the model is one atomic operation of the C++, with what the process then does to its
 * own variables: between any two others may run, and death may come. Stated where it differs:
 *
 *   - Memory is sequentially consistent here. What the C++ orders with acquire and release must
 *     have that effect; where it takes more (Slot::finish), there is a broken copy that shows it.
 *   - Nobody sleeps: who has nothing to do is blocked until there is something. Lost wake-ups are
 *     not a matter of this model.
 *   - Errors, cancelled epochs and the layout of rows are left out.
 *   - A write of a row is one step. That death may tear it needs no step of its own: the row is
 *     then as good as not written.
 *   - Workers are alike, and slots are before their first use: so worker 0 dies first and slot 0
 *     is used first, without loss of generality.
 *
 * With BROKEN_x defined one thing is done wrong, and Spin must find an error. With SPARE_x one
 * thing is left out, or done in another order, that the protocol can spare.
 */

#ifndef BATCHES
#define BATCHES 3 /* the third uses a slot again, and an entry of the ring */
#endif
#ifndef DEATHS
#define DEATHS 1 /* at most; 0 to 2 */
#endif
#define WORKERS 2
#define SLOTS 2
#define RING 2
#define ROWS 2 /* the first batch may have one row, so that num_samples changes */

/* A row's word: generation, owner (0 nobody, w + 1 worker w), state. */
#define PENDING 0
#define FINAL 1
#define ROW(generation, owner, state) ((generation) << 3 | (owner) << 1 | (state))

/* The other words: generation and next row (ticket), count (done) or owner (collator). */
#define WORD(generation, low) ((generation) << 2 | (low))
#define GENERATION(word) ((word) >> 2)
#define LOW(word) ((word) & 3)
#define NO_ROW 3

#define OPEN 0
#define READY 1

/* As in the C++, all of it is zero at first: a ticket, row and collator of generation 0. */
typedef Slot {
  byte ticket;
  byte num_samples;
  byte row[ROWS];
  byte done[WORKERS]; /* written by its worker, or by the supervisor when that one is dead */
  byte collator;      /* SlotHeader::completer */
  bit status;
  byte data[ROWS]; /* ghost: 1 + the generation of the sample that was written last */
}

Slot slot[SLOTS];
byte ring[RING]; /* slot of the batch */
byte head;
byte published;
bit stop;

bit dead[WORKERS]; /* and not replaced yet; the supervisor sees it with waitpid */
chan death = [0] of {byte};

/* Ghost: how far a batch is. 0 incomplete, w + 1 worker w collates it. */
#define COMPLETE 3
#define DELIVERED 4
byte phase[BATCHES];

#define ALL_ROWS_ARE_OF(generation)                       \
  (slot[s].data[0] == (generation) + 1 &&                 \
   (slot[s].num_samples == 1 || slot[s].data[1] == (generation) + 1))

#define IS_OPEN_BATCH(generation)                                                        \
  (phase[generation] < COMPLETE && GENERATION(slot[s].ticket) == (generation) &&         \
   slot[s].status == OPEN)


#define SIZE slot[s].num_samples

/* ---- worker ---- */

#ifdef BROKEN_CLAIM_WITHOUT_GENERATION
#define TICKET_IS_STILL(seen) (LOW(slot[s].ticket) == LOW(seen))
#else
#define TICKET_IS_STILL(seen) (slot[s].ticket == (seen))
#endif

/* Control::claim: leaves with rows row .. last - 1 of batch h in slot s to try. */
inline claim() {
  do
  :: if
     /* head and published. Loading both at once loses nothing: published only grows, and a head
        that is out of date is had by waiting after this step. Blocking is the worker's sleep. */
     :: atomic { published > head -> h = head }
     :: atomic { stop -> goto ended }
     fi;
     s = ring[h % RING];
     ticket = slot[s].ticket;
     if
     :: atomic { GENERATION(ticket) == h && LOW(ticket) < SIZE -> /* num_samples */
          if
          :: last = LOW(ticket) + 1
          :: SIZE - LOW(ticket) > 1 -> last = LOW(ticket) + 2
          fi
        }
        if /* the compare-exchange of the ticket */
        :: atomic { TICKET_IS_STILL(ticket) ->
             slot[s].ticket = WORD(GENERATION(slot[s].ticket), last);
             row = LOW(ticket);
             left = -1; /* if it gets no row, it is not the last */
             ticket = 0;
             break
           }
        :: atomic { !TICKET_IS_STILL(ticket) -> forget() }
        fi
     :: atomic { !(GENERATION(ticket) == h && LOW(ticket) < SIZE) -> s = 0; ticket = 0 }
        atomic { /* advance */
          if
          :: head == h -> head++
          :: else
          fi;
          h = 0
        }
     fi
  od
}

#ifdef BROKEN_OWN_WITHOUT_GENERATION
#define ROW_IS_FREE ((slot[s].row[row] & 7) == ROW(0, 0, PENDING))
#elif defined(BROKEN_TAKE_OVER_WITHOUT_EXCHANGE)
#define ROW_IS_FREE (replacement || slot[s].row[row] == ROW(h, 0, PENDING))
#else
#define ROW_IS_FREE (slot[s].row[row] == ROW(h, 0, PENDING))
#endif

inline write(which) {
  assert(IS_OPEN_BATCH(h));
  slot[s].data[which] = h + 1
}

#if defined(BROKEN_SETTLE_BEFORE_WRITE) || defined(BROKEN_COUNT_BEFORE_WRITE)
#define WRITE_IN_TIME
#else
#define WRITE_IN_TIME write(row);
#endif

/* Filler::own and what fills the rows. Needs row < last. */
inline fill() {
  do
  :: atomic { ROW_IS_FREE -> /* Slot::own */
       slot[s].row[row] = ROW(h, me + 1, PENDING);
       owned = owned | 1 << row
     }
     atomic {
       WRITE_IN_TIME
       row++;
       if
       :: row == last -> row = 0; last = 0; break
       :: else
       fi
     }
  :: atomic { !ROW_IS_FREE ->
       row++;
       if
       :: row == last -> row = 0; last = 0; break
       :: else
       fi
     }
  od
}

#define COUNT_OF(w) (GENERATION(slot[s].done[w]) == h -> LOW(slot[s].done[w]) : 0)

/* Slot::settle of all own rows, then the first half of Slot::finish. Only this worker writes its
   done word, so that loading it takes no step of its own. `left` is what others must have counted.
   Uncounted rows keep the batch from being completed, so that this is still its num_samples. */
inline settle_and_count() {
  do
  :: atomic { owned & 1 ->
       slot[s].row[0] = ROW(h, me + 1, FINAL);
       owned = owned & 2; finished++
     }
  :: atomic { owned == 2 ->
       slot[s].row[1] = ROW(h, me + 1, FINAL);
       owned = 0; finished++
     }
  :: atomic { owned == 0 && finished > 0 ->
       assert(IS_OPEN_BATCH(h));
       slot[s].done[me] = WORD(h, COUNT_OF(me) + finished);
       left = SIZE - COUNT_OF(me);
       assert(COUNT_OF(1 - me) <= left);
       finished = 0;
       break
     }
  :: atomic { owned == 0 && finished == 0 -> break } /* a replacement was first */
  od
}

/* The rest of Slot::finish (all_done, elect), and Worker::complete. */
inline complete_if_last(afterwards) {
  if
  :: atomic { left != COUNT_OF(1 - me) -> s = 0; left = 0; afterwards }
  :: atomic { left == COUNT_OF(1 - me) -> left = 0 }
     if
     :: atomic { slot[s].collator != WORD(h, 0) -> s = 0; afterwards }
     :: atomic { slot[s].collator == WORD(h, 0) ->
          slot[s].collator = WORD(h, me + 1);
          assert(phase[h] == 0);
          phase[h] = me + 1
        }
        atomic { /* collate, Control::complete */
          assert(phase[h] == me + 1 && IS_OPEN_BATCH(h) && ALL_ROWS_ARE_OF(h));
          slot[s].status = READY;
          phase[h] = COMPLETE;
          s = 0; afterwards
        }
     fi
  fi
}

/* Worker::take_over with Control::for_each_open. */
inline take_over() {
  atomic { end = published; h = (end > RING -> end - RING : 0) }
  do
  :: atomic { h == end -> h = 0; end = 0; break }
  :: atomic { h < end -> s = ring[h % RING] }
     ticket = slot[s].ticket;
     left = SIZE;
     if
     :: atomic { GENERATION(ticket) == h && slot[s].status == OPEN ->
          last = (LOW(ticket) < left -> LOW(ticket) : left);
          left = left - COUNT_OF(me); /* if it gets no row: Slot::take_completion */
          ticket = 0
        }
        if
        :: last > 0 -> fill(); settle_and_count()
        :: last == 0
        fi;
        complete_if_last(h++)
     :: atomic { !(GENERATION(ticket) == h && slot[s].status == OPEN) ->
          s = 0; ticket = 0; left = 0; h++
        }
     fi
  od
}

inline forget() {
  h = 0; s = 0; ticket = 0; row = 0; last = 0; owned = 0; finished = 0; left = 0; end = 0
}

proctype Worker(byte me) {
  byte h, s, ticket, row, last, owned, finished, end;
  short left;
  bit replacement;
begin:
  {
    if
    :: replacement -> take_over()
    :: !replacement
    fi;
    do
    :: claim();
       fill();
       settle_and_count();
       complete_if_last(h = 0)
    od
  } unless {
    atomic {
      death ? eval(me) ->
      dead[me] = 1;
      if
      :: h < BATCHES && phase[h] == me + 1 -> phase[h] = 0
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

active proctype Fate() {
#if DEATHS > 0
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
#else
  skip
#endif
}

/* ---- supervisor ---- */

/* Slot::disown, the rows: each load is a step, and each store. */
inline disown_rows(w) {
  do
  :: atomic { row < SIZE && slot[s].row[row] == ROW(g, w + 1, PENDING) -> skip }
     atomic { slot[s].row[row] = ROW(g, 0, PENDING); row++ }
  :: atomic { row < SIZE && slot[s].row[row] == ROW(g, w + 1, FINAL) -> settled++; row++ }
  :: atomic { row < SIZE && slot[s].row[row] >> 1 != ROW(g, w + 1, 0) >> 1 -> row++ }
  :: atomic { row >= SIZE -> row = 0; break }
  od;
  if
  :: atomic { settled > 0 -> slot[s].done[w] = WORD(g, settled); settled = 0 }
  :: settled == 0
  fi
}

inline disown_collator(w) {
  if
  :: slot[s].status == OPEN ->
     atomic {
       if
       :: slot[s].collator == WORD(g, w + 1) -> slot[s].collator = WORD(g, 0)
       :: else
       fi;
       s = 0; g++
     }
  :: atomic { slot[s].status != OPEN -> s = 0; g++ }
  fi
}

/* Control::disown */
inline disown(w) {
  atomic { end = published; g = (end > RING -> end - RING : 0) }
  do
  :: atomic { g < end -> s = ring[g % RING] }
     if
     :: GENERATION(slot[s].ticket) == g -> disown_rows(w); disown_collator(w)
     :: atomic { GENERATION(slot[s].ticket) != g -> s = 0; g++ }
     fi
  :: atomic { g == end -> g = 0; end = 0; dead[w] = 0; break }
  od
}

active proctype Supervisor() {
  byte g, s, row, settled, end;
  do
  :: dead[0] -> disown(0)
#if DEATHS > 1
  :: dead[1] -> disown(1)
#endif
  :: stop -> break
  od
}

/* ---- main ---- */

/* Slot::publish and Control::publish, of a slot and an entry of the ring that were never used: one
   step, since nobody can find the slot before the last store. */
inline publish_unused() {
  d_step {
    slot[s].ticket = WORD(gen, 0);
    slot[s].row[0] = ROW(gen, 0, PENDING);
    if
    :: SIZE > 1 -> slot[s].row[1] = ROW(gen, 0, PENDING)
    :: else
    fi;
    slot[s].collator = WORD(gen, 0);
    slot[s].status = OPEN;
    ring[gen % RING] = s;
    s = 0; gen++;
    published = gen
  }
}

inline publish() {
  slot[s].ticket = slot[s].ticket | NO_ROW;
  if
  :: SIZE = 2
  :: MAY_BE_SMALL(gen) -> SIZE = 1
  fi;
  slot[s].row[0] = ROW(gen, 0, PENDING);
  if
  :: atomic { SIZE > 1 -> slot[s].row[1] = ROW(gen, 0, PENDING) }
  :: SIZE == 1
  fi;
  slot[s].collator = WORD(gen, 0);
  slot[s].status = OPEN;
  slot[s].ticket = WORD(gen, 0);
  ring[gen % RING] = s;
  atomic { s = 0; gen++; published = gen }
}

#define MAY_BE_SMALL(generation) ((generation) == 0 || (generation) == BATCHES - 1)

active proctype Main() {
  byte gen, next, s;
  bit busy[SLOTS], used[SLOTS];
  atomic { run Worker(0); run Worker(1) }
  do
  :: atomic { gen < BATCHES && !(busy[0] && busy[1]) ->
       if
       :: !busy[0] -> s = 0
       :: !busy[1] && gen > 0 -> s = 1
       fi;
       busy[s] = 1;
       if
       :: gen < RING && !used[s] ->
          used[s] = 1;
          if
          :: SIZE = 2
          :: MAY_BE_SMALL(gen) -> SIZE = 1
          fi;
          publish_unused();
          goto published_it
       :: else -> used[s] = 1
       fi
     }
     publish();
published_it:
     skip
  :: atomic { next < gen && slot[ring[next % RING]].status != OPEN ->
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
