/* Pooled keys in the blocks of the latents they index: one table, one block of the pool, two groups' slots. */
#include <stdio.h>
#include <string.h>

#include "blockzero_kv.h"

static int failures = 0;
#define EXPECT(condition) \
  ((condition) ? (void)0 : (void)(++failures, fprintf(stderr, "line %d: %s\n", __LINE__, #condition)))

static void refused(const bz_kv_config* config, const char* why) {
  char error[200] = "";
  EXPECT(bz_kv_create(config, error, sizeof error) == NULL);
  if (strstr(error, why) == NULL) ++failures, fprintf(stderr, "'%s' does not say '%s'\n", error, why);
}

int main(void) {
  bz_kv_group groups[3] = {{BZ_KV_FULL, 16}, {BZ_KV_COMPRESSED, 4}, {BZ_KV_FULL, 16}};
  groups[1].ratio = 4;
  groups[1].shares_table = 1;
  bz_kv_config config = {groups, 2, 16, 4, 64};
  bz_kv_cache* cache = bz_kv_create(&config, NULL, 0);
  const int32_t row = bz_kv_admit(cache, 0);
  bz_kv_append(cache, row, 20);
  EXPECT(bz_kv_num_used_blocks(cache) == 2);
  EXPECT(bz_kv_write_slot(cache, 1, row, 18, 20) == -1); /* closes no entry */
  EXPECT(bz_kv_write_slot(cache, 1, row, 19, 20) == bz_kv_entry_slot(cache, 1, row, 4));
  EXPECT(bz_kv_write_slot(cache, 1, row, 19, 20) / 4 == bz_kv_write_slot(cache, 0, row, 19, 20) / 16);
  bz_kv_plan plan;
  bz_kv_take_plan(cache, &plan);
  for (int32_t i = 0; i < plan.num_changes; ++i) EXPECT(plan.changes[i].group == 0);
  EXPECT(bz_kv_check(cache, NULL, 0) == 0);
  bz_kv_destroy(cache);

  config.num_groups = 3;
  refused(&config, "group 2: has a table of its own, so it comes before");
  config.num_groups = 2;
  groups[1].table_of = 1;
  refused(&config, "group 1: table_of 1 is no group before it");
  groups[1].table_of = 0;
  groups[1].block_size = 8; /* 32 tokens a block, the table's hold 16 */
  refused(&config, "group 1: its entries cannot lie in the blocks of group 0");

  groups[0].block_size = 1 << 20;
  groups[0].cp_world = 1 << 12; /* 2^32 tokens: a count of tokens would wrap */
  refused(&config, "group 0: blocks of 1048576 entries, ratio 0, 4096 ranks: a block may have 16777216 tokens");
  return failures != 0;
}
