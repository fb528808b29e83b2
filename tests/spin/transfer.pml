/* Transfer x free x dummy replay, over one block (XFER-1, KV-2, PAD-3, PAD-4).
 *
 * The host schedules, releases, cancels and receives; the device runs plans late, in order; the network writes whenever an
 * operation runs. Claim: nobody writes a block that belongs to somebody else. Each of -DNO_FENCE (a freed block is handed
 * out at once), -DNO_PIN (a cancelled receive lets go while its operation runs) and -DSTALE_ROW (a release writes no table
 * change, and dummy steps replay what the rows hold) must break it.
 */
mtype = { NOBODY, ROW, NET };
mtype = { KEEP, SET, CLEAR };

#define MAX_PLANS 5

mtype owner = NOBODY;  /* of the block, by the host's books */
bool fenced = false;   /* free, but a plan in flight may still touch it */
byte fence = 0;        /* that plan */
byte taken = 0;        /* plans numbered by the host */
byte done = 0;         /* plans the device has finished */
mtype change = KEEP;   /* pending for the device's table row */
bool dev_row = false;  /* the device's row names the block */
bool op = false;       /* a network operation runs */
bool cancelled = false;
chan plans = [MAX_PLANS] of { mtype, bool };

inline free_block() {
#ifdef NO_FENCE
  fenced = false;
#else
  fence = taken;
  fenced = (taken > done);
#endif
  owner = NOBODY
}

active proctype host() {
  do
  :: atomic { fenced && done >= fence -> fenced = false }
  :: atomic { owner == NOBODY && !fenced && !op && taken < MAX_PLANS -> owner = ROW; change = SET }
  :: atomic { owner == ROW && taken < MAX_PLANS -> taken++; plans!change, true; change = KEEP }
  :: atomic { taken < MAX_PLANS -> taken++; plans!change, false; change = KEEP }  /* dummy step, or a change plan */
  :: atomic { owner == ROW ->
#ifndef STALE_ROW
       change = CLEAR;
#else
       change = KEEP;
#endif
       free_block() }
#ifdef NO_PIN
  :: atomic { owner == NOBODY && !fenced -> owner = NET; op = true; cancelled = false }
  :: atomic { owner == NET -> cancelled = true; free_block() }
#else
  :: atomic { owner == NOBODY && !fenced && !op -> owner = NET; op = true; cancelled = false }
  :: atomic { owner == NET -> cancelled = true }  /* the row is gone; its pins wait for the operation */
  :: atomic { owner == NET && !op && cancelled -> free_block() }
#endif
  :: atomic { owner == NET && !op && !cancelled && taken < MAX_PLANS -> owner = ROW; change = SET }
  :: taken == MAX_PLANS && done == taken && !op -> break
  od
}

active proctype device() {
  mtype c;
  bool runs;
  do
  :: atomic { plans?c, runs ->
       if
       :: c == SET -> dev_row = true
       :: c == CLEAR -> dev_row = false
       :: else
       fi }
#ifdef STALE_ROW
     runs = true;
#endif
     if
     :: runs && dev_row -> assert(owner != NET)  /* the row writes its block */
     :: else
     fi;
     done++
  :: done == MAX_PLANS -> break
  od
}

active proctype network() {
end:
  do
  :: op -> assert(owner == NET)  /* a piece of the operation lands */
  :: atomic { op -> op = false } /* it has finished */
  od
}
