/* Two processes' caches in one: a row is sent from the first and received by the second; then a load fails, and a lease
 * runs out. Also: zeroed blocks arrive as copies from block 0. */
#include <stdio.h>

#include "blockzero_kv.h"

static int failures = 0;
#define EXPECT(condition) \
  ((condition) ? (void)0 : (void)(++failures, fprintf(stderr, "line %d: %s\n", __LINE__, #condition)))

static uint64_t run_plans(bz_kv_cache* cache) {
  bz_kv_plan plan;
  do {
    bz_kv_take_plan(cache, &plan);
  } while (!plan.complete);
  for (int32_t i = 0; i < plan.num_copies; ++i) EXPECT(plan.copies[i].from == 0 && plan.copies[i].to != 0);
  EXPECT(plan.num_copies == 0 || plan.num_copies == 3);
  bz_kv_processed(cache, plan.sequence);
  return plan.sequence;
}

int main(void) {
  bz_kv_group group = {BZ_KV_FULL, 16};
  group.zeroed = 1;
  bz_kv_config config = {&group, 1, 16, 4, 64};
  config.max_transfers = 1;
  config.block_stride = 4096;
  bz_kv_cache* from = bz_kv_create(&config, NULL, 0);
  bz_kv_cache* to = bz_kv_create(&config, NULL, 0);
  const int32_t sender = bz_kv_admit(from, 0), receiver = bz_kv_admit(to, 0);
  bz_kv_append(from, sender, 40);
  EXPECT(!bz_kv_can_send(from, sender)); /* its plan has not run */
  run_plans(from);
  EXPECT(bz_kv_can_send(from, sender) && bz_kv_can_receive(to, receiver, 40));
  const int32_t send = bz_kv_send(from, sender, 1, 100), receive = bz_kv_receive(to, receiver, 40, 1);
  bz_kv_piece pieces[3];
  EXPECT(bz_kv_transfer_pieces(from, send, pieces, 3) == 1 && pieces[0].length == 3 * 4096 && pieces[0].offset >= 4096);
  EXPECT(bz_kv_transfer_pieces(to, receive, NULL, 0) == 1);
  bz_kv_release(from, sender);
  EXPECT(bz_kv_num_used_blocks(from) == 3); /* pinned */
  bz_kv_begin_op(from, send);
  bz_kv_begin_op(to, receive);
  EXPECT(bz_kv_entry_slot(to, 0, receiver, 0) == -1); /* in no table before it has landed */
  bz_kv_finish_op(from, send, 1);
  bz_kv_finish_op(to, receive, 1);
  EXPECT(bz_kv_transfer(from, send) == BZ_KV_DONE && bz_kv_transfer(to, receive) == BZ_KV_DONE);
  EXPECT(bz_kv_num_scheduled(to, receiver) == 40 && bz_kv_entry_slot(to, 0, receiver, 39) >= 16);
  bz_kv_close_transfer(from, send);
  bz_kv_close_transfer(to, receive);
  run_plans(to); /* what a transfer may write is never zeroed */

  const int32_t failing = bz_kv_admit(to, 0);
  const int32_t load = bz_kv_receive(to, failing, 20, 1);
  bz_kv_begin_op(to, load);
  bz_kv_finish_op(to, load, 0);
  EXPECT(bz_kv_transfer(to, load) == BZ_KV_FAILED && bz_kv_num_scheduled(to, failing) == 0);
  bz_kv_close_transfer(to, load);
  const int32_t leased = bz_kv_send(to, receiver, 1, 100);
  bz_kv_extend_lease(to, leased, 200);
  EXPECT(bz_kv_expire_leases(to, 150) == 0 && bz_kv_expire_leases(to, 201) == 1);
  EXPECT(bz_kv_transfer(to, leased) == BZ_KV_FAILED && bz_kv_check(to, NULL, 0) == 0 &&
         bz_kv_check(from, NULL, 0) == 0);
  bz_kv_destroy(from);
  bz_kv_destroy(to);
  return failures != 0;
}
