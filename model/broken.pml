/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The places of slot_protocol.pml where it can be broken: each is right unless one of the BROKEN_
 * names is defined. scripts/check_model.sh tries all that this file names.
 */

/* Worker: may another batch's ticket be taken for the one seen? */
#ifdef BROKEN_CLAIM_WITHOUT_GENERATION
#define TICKET_IS_STILL(seen) (LOW(slot[s].ticket) == LOW(seen))
#else
#define TICKET_IS_STILL(seen) (slot[s].ticket == (seen))
#endif

/* Where the words of rows are. In an array behind others whose length depends on num_samples, they
   move; they may then be in memory that is zero, which looks like a free row of generation 0. */
#ifdef BROKEN_ROW_WORDS_MOVE
#define AT(which) (slot[s].num_samples - 1 + which)
#define ROW_WORDS (ROWS + 1)
#else
#define AT(which) which
#define ROW_WORDS ROWS
#endif

/* .. when a worker owns a row. */
#if defined(BROKEN_OWN_WITHOUT_GENERATION)
#define ROW_IS_FREE ((slot[s].row[AT(row)] & 7) == (ROW(0, 0, PENDING) & 7))
#elif defined(BROKEN_TAKE_OVER_WITHOUT_EXCHANGE)
#define ROW_IS_FREE (end > 0 || slot[s].row[AT(row)] == ROW(b, 0, PENDING))
#else
#define ROW_IS_FREE (slot[s].row[AT(row)] == ROW(b, 0, PENDING))
#endif

/* .. the order of writing, settling and counting. */
#if defined(BROKEN_DONE_BEFORE_WRITE)
#define MAY_WRITE (uncounted == 0)
#define MAY_SETTLE true
#define MAY_COUNT (unsettled == 0)
#elif defined(BROKEN_SETTLE_BEFORE_WRITE)
#define MAY_WRITE (unsettled == 0)
#define MAY_SETTLE true
#define MAY_COUNT (unwritten == 0)
#elif defined(BROKEN_DONE_BEFORE_SETTLE)
#define MAY_WRITE true
#define MAY_SETTLE (uncounted == 0)
#define MAY_COUNT (unwritten == 0)
#else
#define MAY_WRITE true
#define MAY_SETTLE (unwritten == 0)
#define MAY_COUNT (unsettled == 0)
#endif

/* .. what others have counted is loaded before this worker's own count is stored. A processor does
   that if both are not sequentially consistent. */
#ifdef BROKEN_LOAD_BEFORE_DONE
byte seen[WORKERS];
#define LOAD_EARLY seen[me] = COUNT_OF(1 - me)
#define COUNT_OF_OTHERS seen[me]
#else
#define LOAD_EARLY skip
#define COUNT_OF_OTHERS COUNT_OF(1 - me)
#endif

/* .. who completes a batch. */
#if defined(BROKEN_ELECT_NOBODY)
#define NOBODY_COMPLETES true
#elif defined(BROKEN_ELECT_WITHOUT_GENERATION)
#define NOBODY_COMPLETES (LOW(slot[s].completer) == 0)
#else
#define NOBODY_COMPLETES (slot[s].completer == WORD(b, 0))
#endif

/* A replacement: does it look whether the batch is open, and whether all rows were counted where it
   finds none to fill? */
#ifdef BROKEN_TAKE_OVER_WITHOUT_STATUS
#define IS_STILL_OPEN true
#else
#define IS_STILL_OPEN (slot[s].status == OPEN)
#endif
#ifdef BROKEN_TAKE_OVER_WITHOUT_CHECK
#define CHECKS false
#else
#define CHECKS true
#endif

/* The supervisor. */
#ifdef BROKEN_DISOWN_THE_LIVING
#define IS_THOUGHT_DEAD(w) true
#else
#define IS_THOUGHT_DEAD(w) dead[w]
#endif
#ifdef BROKEN_DISOWN_FORGETS_ROWS
#define FREE_ROW skip
#else
#define FREE_ROW slot[s].row[AT(row)] = ROW(b, 0, PENDING)
#endif
#ifdef BROKEN_DISOWN_FORGETS_COUNT
#define SET_COUNT(w) skip
#else
#define SET_COUNT(w) slot[s].done[w] = WORD(b, settled)
#endif

/* .. the second half of Slot::disown. */
#if defined(BROKEN_DISOWN_FORGETS_COMPLETER)
inline disown_completer(w) { skip }
#elif defined(BROKEN_DISOWN_IGNORES_STATUS)
inline disown_completer(w) {
  atomic {
    if
    :: slot[s].completer == WORD(b, w + 1) -> slot[s].completer = WORD(b, 0)
    :: else
    fi
  }
}
#elif defined(BROKEN_DISOWN_LOADS_STATUS_LAST)
/* .. loads, in the wrong order, and a store instead of a compare-exchange. */
inline disown_completer(w) {
  if
  :: slot[s].completer == WORD(b, w + 1) ->
     if
     :: slot[s].status == OPEN -> slot[s].completer = WORD(b, 0)
     :: slot[s].status != OPEN
     fi
  :: slot[s].completer != WORD(b, w + 1)
  fi
}
#else
inline disown_completer(w) {
  if
  :: slot[s].status == OPEN ->
     atomic { /* the compare-exchange */
       if
       :: slot[s].completer == WORD(b, w + 1) -> slot[s].completer = WORD(b, 0)
       :: else
       fi
     }
  :: slot[s].status != OPEN
  fi
}
#endif

/* Main: publishing. */
#ifdef BROKEN_PUBLISH_LEAVES_TICKET_OPEN
#define CLOSED(ticket) ticket
#else
#define CLOSED(ticket) ticket | NO_ROW
#endif
#ifdef BROKEN_PUBLISH_OPENS_FIRST
#define OPEN_EARLY slot[s].status = OPEN
#else
#define OPEN_EARLY skip
#endif
