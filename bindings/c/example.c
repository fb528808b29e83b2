/* Two requests with one prompt through a cache of two groups: every token of a step gets its slot, the second request
 * finds the first one's blocks, and padded batch rows get slot -1. Where an engine would run a model, this prints. */
#include <stdio.h>
#include <stdlib.h>

#include "blockzero_kv.h"

/* What an engine does with a plan: tables, copies, then the batch. Here the tables are the host's own. */
static void run_plan(bz_kv_cache* cache) {
  bz_kv_plan plan;
  do {
    bz_kv_take_plan(cache, &plan);
    printf("plan %llu: %d table changes, %d copies\n", (unsigned long long)plan.sequence, plan.num_changes,
           plan.num_copies);
  } while (!plan.complete);
  const int padded_rows = 4; /* the captured size of the batch */
  for (int i = 0; i < padded_rows; ++i) {
    const bz_kv_span null_row = {0, 0, 1};
    const bz_kv_span span = i < plan.num_rows ? plan.rows[i] : null_row;
    const int32_t end = span.start + span.query_len;
    printf("  batch row %d (row %d): last token %d, slots %lld and %lld\n", i, span.row, end - 1,
           (long long)bz_kv_write_slot(cache, 0, span.row, end - 1, end),
           (long long)bz_kv_write_slot(cache, 1, span.row, end - 1, end));
    if (span.row != 0) bz_kv_set_processed(cache, span.row, end);
  }
  bz_kv_processed(cache, plan.sequence);
}

int main(void) {
  bz_kv_group groups[2] = {{BZ_KV_FULL, 16}, {BZ_KV_SLIDING_WINDOW, 16, 64}};
  bz_kv_config config = {groups, 2, 64, 5, 512};
  config.prefix_cache = 1;
  char error[200];
  bz_kv_cache* cache = bz_kv_create(&config, error, sizeof error);
  if (cache == NULL) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  int32_t tokens[101];
  for (int32_t i = 0; i < 101; ++i) tokens[i] = 1000 + i;
  for (int request = 0; request < 2; ++request) {
    const int32_t cached = bz_kv_find_prefix(cache, tokens, 101, NULL);
    printf("request %d: %d of 101 tokens are cached\n", request, cached);
    if (!bz_kv_can_admit_hit(cache, 101 - cached)) return 1;
    const int32_t row = bz_kv_admit_hit(cache, 0);
    bz_kv_append(cache, row, 101 - cached);
    run_plan(cache);
    bz_kv_publish(cache, row, tokens, 101, NULL);
    for (int step = 0; step < 2 && bz_kv_can_append(cache, row, 1); ++step) {
      bz_kv_append(cache, row, 1);
      run_plan(cache);
    }
    bz_kv_release(cache, row);
  }
  printf("%d blocks in use, %d broken invariants\n", bz_kv_num_used_blocks(cache), bz_kv_check(cache, NULL, 0));
  bz_kv_destroy(cache);
  return 0;
}
