// The configurations that worlds are tried with, and random walks through them (cache_world.h).
#include <cstdlib>

#include "kv/cache_world.h"
#include "sim/group_specs.h"

namespace bz::kv {
namespace {

using namespace sim;  // group_spec() and its like

uint64_t next(uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

CacheConfig config_of(std::vector<GroupSpec> groups, int32_t num_spec = 0) {
  CacheConfig c;
  c.groups = std::move(groups);
  c.num_blocks = 40;
  c.max_rows = 5;
  c.max_seq_len = 40;
  c.max_in_flight = 24;
  c.max_changes_per_plan = 25;
  c.num_spec = num_spec;
  c.max_transfers = 3;
  c.block_stride = 4096;
  c.prefix_cache = true;
  return c;
}

}  // namespace

std::vector<NamedConfig> world_configs() {
  std::vector<NamedConfig> all;
  all.push_back({"full", config_of({group_spec(CacheKind::kFull, 4)})});
  all.push_back({"gemma: full and window",
                 config_of({group_spec(CacheKind::kFull, 8), window_spec(CacheKind::kSlidingWindow, 4, 6)})});
  all.push_back({"full and chunked local",
                 config_of({group_spec(CacheKind::kFull, 4), window_spec(CacheKind::kChunkedLocal, 4, 8)})});
  all.push_back(
      {"v4.1: window, compressed, ring", config_of({window_spec(CacheKind::kSlidingWindow, 4, 6), compressed_spec(2, 4),
                                                    compressed_spec(1, 4), ring_spec(2, compressor_ring_v41(2), false)},
                                                   2)});
  all.push_back({"v4: window, two ratios, overlapping ring",
                 config_of({window_spec(CacheKind::kSlidingWindow, 4, 5), compressed_spec(4, 2), compressed_spec(8, 1),
                            ring_spec(4, compressor_ring_v4(4, true, 1), true),
                            ring_spec(8, compressor_ring_v4(8, false, 1), false)},
                           1)});
  all.push_back({"glm: latent, pooled, tail, state", config_of({group_spec(CacheKind::kFull, 8), compressed_spec(4, 2),
                                                                ring_spec(4, pool_ring(4, 2), false), state_spec()},
                                                               2)});
  all.push_back(
      {"qwen4: full, ring, states",
       config_of({group_spec(CacheKind::kFull, 8), ring_spec(4, qsa_ring(4, 1, 8), false), state_spec(), state_spec()},
                 1)});
  // As make_layout places them: pooled keys in the blocks of the entries they index, rings in those of a state.
  all.push_back(
      {"glm: pooled keys beside latents, tail beside a state",
       config_of({group_spec(CacheKind::kFull, 8), state_spec(), state_spec(), in_blocks_of(0, compressed_spec(4, 2)),
                  in_blocks_of(2, ring_spec(4, pool_ring(4, 2), false))},
                 2)});
  all.push_back(
      {"v4: two ratios in one table, two rings in another",
       config_of({window_spec(CacheKind::kSlidingWindow, 4, 5), ring_spec(4, compressor_ring_v4(4, true, 1), true),
                  compressed_spec(4, 4), in_blocks_of(2, compressed_spec(8, 2)),
                  in_blocks_of(1, ring_spec(8, compressor_ring_v4(8, false, 1), false))},
                 1)});
  all.push_back({"a ring that does not divide the blocks",
                 config_of({group_spec(CacheKind::kFull, 3), ring_spec(2, 4, false)}, 1)});
  all.push_back({"states alone", config_of({state_spec(), state_spec()}, 3)});
  all.push_back({"cross and sink", config_of({sink_spec(4, 6), group_spec(CacheKind::kCross, 4)})});
  all.push_back(
      {"context parallel", config_of({context_parallel_spec(4, 2, 1, 2), context_parallel_spec(4, 2, 0, 1)})});
  all.push_back({"a small cache: full and window",
                 config_of({group_spec(CacheKind::kFull, 4), window_spec(CacheKind::kSlidingWindow, 4, 6)})});
  all.back().config.num_blocks = 11;
  for (NamedConfig& n : all) {
    if (n.config.groups.back().kind == CacheKind::kCross) n.config.max_encoder_tokens = 6;
    if (std::string(n.name) == "states alone") n.config.snapshot_interval = 4;
    // Two of them with kernels that read before they write, and one with a draft layer.
    if (std::string(n.name).starts_with("v4.1")) n.config.groups[1].zeroed = n.config.groups[3].zeroed = true;
    if (n.config.groups.back().table_of == 1) n.config.groups[1].zeroed = n.config.groups.back().zeroed = true;
    if (std::string(n.name) == "full") n.config.groups[0].zeroed = n.config.recompute_last_block = true;
  }
  return all;
}

std::string random_walk(const CacheConfig& config, uint64_t seed, int steps, std::vector<int64_t>* applied) {
  World world(config, 24);
  // Each walk has its own taste for operations, so that rare ones come in droves in some; what moves things on stays.
  std::vector<Op> taste;
  for (int op = 0; op < static_cast<int>(Op::kCount); ++op) {
    static constexpr size_t kWeights[] = {0, 1, 2, 10};
    size_t weight = kWeights[next(seed) % 4];
    if (op <= static_cast<int>(Op::kProcessed)) weight = std::max<size_t>(weight, 2);
    taste.insert(taste.end(), weight, static_cast<Op>(op));
  }
  for (int i = 0, tries = 0; i < steps && tries < 8 * steps; ++tries) {
    const uint64_t x = next(seed);
    const Op op = taste[x % taste.size()];
    if (op == Op::kReset && x % 7 != 0) continue;
    const bool done = world.apply(op, static_cast<uint32_t>(x >> 20), static_cast<uint32_t>(x >> 40));
    if (!done) continue;
    ++i;
    if (applied != nullptr) ++(*applied)[static_cast<size_t>(op)];
    const std::string error = world.check();
    if (!error.empty()) return fmt::format("step {} (op {}): {}", i, static_cast<int>(op), error);
  }
  world.wind_down();
  return world.check();
}

}  // namespace bz::kv
