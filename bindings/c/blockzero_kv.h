/* The cache core of Blockzero as a C library: rows, blocks, tables, plans and slots, for engines in any language.
 *
 * It hands out ids, byte offsets and plain tables; it never sees a device or a pointer to cache memory. One cache
 * belongs to one thread at a time. Ask, then act: a question (can_...) is pure, and the act after a yes cannot fail.
 * Misuse (an id that is not live, an act whose question says no) aborts with one line: it is a fault of the program.
 *
 * A step: admit rows; append tokens to rows; take_plan until it is complete; apply each plan's changes to the device's
 * tables in order, run its copies, then run its rows; once a plan has finished, processed(sequence).
 * Block 0 and table row 0 are null for ever: give padded batch rows row 0, and every slot of theirs is -1.
 */
#ifndef BLOCKZERO_KV_H
#define BLOCKZERO_KV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bz_kv_cache bz_kv_cache;

typedef enum {
  BZ_KV_FULL = 0,
  BZ_KV_SLIDING_WINDOW = 1,
  BZ_KV_CHUNKED_LOCAL = 2,
  BZ_KV_COMPRESSED = 3,
  BZ_KV_RING = 4,
  BZ_KV_STATE = 5,
  BZ_KV_CROSS = 6,
  BZ_KV_SINK = 7
} bz_kv_kind;

/* Layers whose entries lie alike in the blocks of one table. Zero what does not apply; 0 counts as 1 for ratio,
 * cp_world and cp_interleave. */
typedef struct {
  int32_t kind;       /* bz_kv_kind */
  int32_t block_size; /* entries in a block; of a ring: its capacity; of a state: 1 */
  int32_t window;     /* sliding window: tokens seen, the query's own included; chunked local: tokens in a chunk */
  int32_t ratio;      /* compressed, ring: tokens pooled into an entry */
  int32_t snapshot;   /* state, ring: a prefix hit needs its bytes at the hit's exact position */
  int32_t sink_tokens;
  int32_t cp_world, cp_rank, cp_interleave; /* context parallel, full only */
  int32_t zeroed; /* 1: kernels read a block before they have written all of it; new blocks are zeroed by copies */
  /* 1: no table of its own; its entries lie in the blocks of group table_of, beside that one's (pooled keys beside the
   * latents they index, a ring beside a state). Changes, copies and transfers name that group. Such groups come last.
   */
  int32_t shares_table, table_of;
} bz_kv_group;

typedef struct {
  const bz_kv_group* groups;
  int32_t num_groups;
  int32_t num_blocks; /* with block 0 */
  int32_t max_rows;   /* with row 0 */
  int32_t max_seq_len;
  int32_t max_changes_per_plan; /* 0: 65536 */
  int32_t num_spec;             /* tokens speculated per step */
  int32_t max_in_flight;        /* tokens of a row beyond the processed ones; 0: max_seq_len */
  int32_t max_encoder_tokens;
  int32_t prefix_cache;         /* 1: on */
  int32_t snapshot_interval;    /* tokens; 0: every hash block */
  uint64_t hash_key;            /* random per process */
  int32_t recompute_last_block; /* 1: a draft layer (EAGLE, MTP) needs the last block of a hit computed again */
  int32_t max_transfers;
  int64_t block_stride; /* bytes from one block to the next; for transfers */
} bz_kv_config;

/* NULL for a config that makes no sense; the reason, one line, goes to error (may be NULL). */
bz_kv_cache* bz_kv_create(const bz_kv_config* config, char* error, size_t error_size);
void bz_kv_destroy(bz_kv_cache* cache);

/* ---- rows ---- */
int bz_kv_can_admit(const bz_kv_cache* cache);
int32_t bz_kv_admit(bz_kv_cache* cache, int32_t encoder_tokens);
int bz_kv_can_append(const bz_kv_cache* cache, int32_t row, int32_t num_tokens);
void bz_kv_append(bz_kv_cache* cache, int32_t row, int32_t num_tokens);
void bz_kv_set_processed(bz_kv_cache* cache, int32_t row, int32_t num_tokens);
void bz_kv_rollback(bz_kv_cache* cache, int32_t row, int32_t num_tokens);
int bz_kv_can_fork(const bz_kv_cache* cache, int32_t row);
int32_t bz_kv_fork(bz_kv_cache* cache, int32_t row);
void bz_kv_release(bz_kv_cache* cache, int32_t row);
int32_t bz_kv_num_scheduled(const bz_kv_cache* cache, int32_t row);

/* ---- prefix cache ---- */
typedef struct {
  uint64_t tenant_salt[2]; /* only requests with equal salt and adapter share blocks */
  uint64_t adapter;
} bz_kv_identity;
/* How many tokens of a prompt are cached, for all groups. The hit is good until anything changes. identity: may be
 * NULL. */
int32_t bz_kv_find_prefix(bz_kv_cache* cache, const int32_t* tokens, int32_t num_tokens,
                          const bz_kv_identity* identity);
/* With the hit found last: room for it and num_tokens more? A row that begins with it. */
int bz_kv_can_admit_hit(const bz_kv_cache* cache, int32_t num_tokens);
int32_t bz_kv_admit_hit(bz_kv_cache* cache, int32_t encoder_tokens);
/* All tokens of the row that are known and not speculative. After take_plan. */
void bz_kv_publish(bz_kv_cache* cache, int32_t row, const int32_t* tokens, int32_t num_tokens,
                   const bz_kv_identity* identity);

/* ---- plans ---- */
typedef enum { BZ_KV_SET_BLOCK = 0, BZ_KV_SET_WIDTH = 1, BZ_KV_SET_FIRST = 2, BZ_KV_ROW_START = 3 } bz_kv_change_kind;
typedef struct {
  int32_t kind; /* bz_kv_change_kind: absolute writes, in order */
  int32_t group, row;
  int32_t column; /* BZ_KV_SET_BLOCK: cell of the row */
  uint32_t value;
} bz_kv_change;
typedef struct {
  uint32_t from, to; /* whole slabs, after the changes and before the rows, in any order; from 0: fill with zeros */
} bz_kv_copy;
typedef struct {
  int32_t row, start, query_len;
} bz_kv_span;
typedef struct {
  uint64_t sequence; /* 1, 2, 3, ... */
  int complete;      /* 0: a change plan; apply it and take the next */
  const bz_kv_change* changes;
  int32_t num_changes;
  const bz_kv_copy* copies;
  int32_t num_copies;
  const bz_kv_span* rows;
  int32_t num_rows;
} bz_kv_plan;
/* The arrays live until the next call. */
void bz_kv_take_plan(bz_kv_cache* cache, bz_kv_plan* plan);
void bz_kv_processed(bz_kv_cache* cache, uint64_t sequence);

/* ---- tables and slots ---- */
typedef struct {
  const uint32_t* table; /* [num_rows][columns] block ids */
  const int32_t* width;  /* [num_rows] */
  const int32_t* first;  /* [num_rows] */
  int32_t num_rows, columns;
} bz_kv_table;
bz_kv_table bz_kv_host_table(const bz_kv_cache* cache, int32_t group);
/* -1: nowhere. Where a token of a step writes its entry; seq_end is the row's length after the step. */
int64_t bz_kv_write_slot(const bz_kv_cache* cache, int32_t group, int32_t row, int32_t position, int32_t seq_end);
/* Where an entry (a position; of a compressed group: an entry's number) is read. */
int64_t bz_kv_entry_slot(const bz_kv_cache* cache, int32_t group, int32_t row, int32_t entry);
/* 0: no state. */
uint32_t bz_kv_state(const bz_kv_cache* cache, int32_t group, int32_t row, int32_t column);

/* ---- transfers ----
 * The core pins blocks and moves no bytes. A row being sent may be released but not grown; a row that receives holds
 * its blocks in no table until every operation succeeded. An operation that began is waited for, never aborted. */
typedef enum { BZ_KV_FREE = 0, BZ_KV_RUNNING = 1, BZ_KV_DONE = 2, BZ_KV_FAILED = 3 } bz_kv_transfer_state;
int bz_kv_can_send(const bz_kv_cache* cache, int32_t row);
int32_t bz_kv_send(bz_kv_cache* cache, int32_t row, int32_t num_ops, int64_t deadline); /* a transfer's id */
int bz_kv_can_receive(const bz_kv_cache* cache, int32_t row, int32_t num_tokens);
int32_t bz_kv_receive(bz_kv_cache* cache, int32_t row, int32_t num_tokens, int32_t num_ops);
typedef struct {
  int64_t offset, length; /* bytes, from block 0: whole slabs, neighbours merged */
} bz_kv_piece;
/* How many pieces; the first `size` go to pieces. Of a running transfer. */
int32_t bz_kv_transfer_pieces(const bz_kv_cache* cache, int32_t transfer, bz_kv_piece* pieces, int32_t size);
bz_kv_transfer_state bz_kv_transfer(const bz_kv_cache* cache, int32_t transfer);
void bz_kv_begin_op(bz_kv_cache* cache, int32_t transfer);
void bz_kv_finish_op(bz_kv_cache* cache, int32_t transfer, int ok);
void bz_kv_extend_lease(bz_kv_cache* cache, int32_t transfer, int64_t deadline);
int32_t bz_kv_expire_leases(bz_kv_cache* cache, int64_t now); /* how many sends ended */
/* Gives the id back. REQUIRES: done or failed. */
void bz_kv_close_transfer(bz_kv_cache* cache, int32_t transfer);

/* ---- what it is like ---- */
int32_t bz_kv_num_free_blocks(const bz_kv_cache* cache);
int32_t bz_kv_num_fenced_blocks(const bz_kv_cache* cache);
int32_t bz_kv_num_used_blocks(const bz_kv_cache* cache);
/* Every invariant, slowly. How many are broken; the first, one line, goes to error (may be NULL). */
int32_t bz_kv_check(const bz_kv_cache* cache, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif
#endif
