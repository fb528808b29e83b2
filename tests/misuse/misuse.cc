// What must not compile: ids that do not mix (F16). Each CASE is one test that expects the compiler to refuse; without
// a CASE the file compiles, so that no test passes for another reason.
#include "kv/slot.h"

using namespace bz::kv;

[[maybe_unused]] SlotId use(const GroupView& g, const PageView& p) {
  const RowId row(1);
  const BlockId block = block_at(g, row, 0);
  const SlotId slot = slot_of(g, row, 0);
  (void)entry_offset(p, slot);
  (void)page_offset(p, block);
#if CASE == 1
  (void)entry_offset(p, block);  // a block where a slot belongs
#elif CASE == 2
  (void)page_offset(p, slot);  // a slot where a block belongs
#elif CASE == 3
  (void)block_at(g, 1, 0);  // an integer where a row belongs
#elif CASE == 4
  return SlotId(block.value());  // 32 bits where 64 belong, unspoken
#elif CASE == 5
  const StateId state = block;  // a block as a state
  (void)state;
#elif CASE == 6
  if (slot == kNullBlock) return slot;  // one sentinel for another
#elif CASE == 7
  if (block == -1) return slot;  // an integer sentinel
#elif CASE == 8
  const NumValidRows rows = NumValidTokens(1);  // tokens as rows (PAD-6)
  (void)rows;
#elif CASE == 9
  return slot + 1;  // arithmetic on an id
#endif
  return slot;
}
