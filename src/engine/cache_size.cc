#include "engine/cache_size.h"

#include <algorithm>

#include "base/math.h"
#include "kv/rules.h"

namespace bz::engine {
namespace {

// The budget whose layout has at least so many blocks: make_layout may round under 1 % of them away.
int64_t budget_for(const kv::Layout& layout, int64_t num_blocks) {
  const int64_t enough = num_blocks + num_blocks / 99 + 1;
  return layout.head_bytes + round_up(enough * layout.block_stride, layout.granule);
}

}  // namespace

int64_t default_cache_bytes(const kv::Layout& layout, const kv::CacheConfig& config, int64_t free_bytes) {
  const int64_t longest = kv::num_blocks_for(config, config.max_seq_len);
  int64_t sinks = 0;  // which all requests share
  for (const kv::GroupSpec& spec : config.groups) sinks += kv::sink_columns(spec);
  const auto share = static_cast<int64_t>(kCacheShare * static_cast<double>(free_bytes));
  int64_t bytes = share / layout.granule * layout.granule;
  const int64_t one = budget_for(layout, sinks + longest);
  if (one <= free_bytes - kLeftFree) bytes = std::max(bytes, one);
  return std::min(bytes, budget_for(layout, sinks + (config.max_rows - 1) * longest));
}

}  // namespace bz::engine
