// B10: the cache manager on the CPU, beside floors measured in the same run (arms interleaved, medians).
//
//   alloc+free   131,072 blocks taken and given back in random order; ns per pair
//                floor: a plain intrusive list, two links and a reference count a node, no checks; peer: std::list +
//                std::unordered_map
//   append       256 rows grow a token at a time to 1,024 tokens; ns per append
//                floor: kv_floors.h, the least that any append must do behind the same call
//   schedule     one decode step of 256 sequences: ask, append, plan, processed; us per step; gate 25 us; the same with
//                three groups (full, sliding window, state), windows moving
//   prefix       a prompt of 50,000 tokens in a full cache: found, whole; published, which evicts as many blocks; us
//                floor of the match: comparing the tokens; of publishing with SHA-256: the hash of every block, chained
//
// Heap allocations of the measured parts are counted and must be 0 (ENG-3).
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <openssl/sha.h>

#include "heap_count.h"
#include "kv/cache_manager.h"
#include "kv_floors.h"

namespace bz {
namespace {

using kv::BlockId;
using kv::RowId;

constexpr int kRounds = 21;
constexpr int32_t kBlocks = 131072;
constexpr int32_t kRows = 256;
constexpr int32_t kTokens = 1024;
constexpr int32_t kBlockSize = 16;

using bench::LeastCache;
using bench::PlainList;
using bench::StdPool;

class OurPool {
 public:
  explicit OurPool(int32_t n) : pool_(n) {}
  uint32_t pop() {
    const BlockId id = pool_.allocate();
    pool_.set_cached(id, true);  // goes to the end of the LRU list when freed, as in the other arms
    return id.value();
  }
  void push(uint32_t id) { pool_.release(BlockId(id), 0); }

 private:
  kv::BlockPool pool_;
};

// ---- arms ----

struct Arm {
  std::string name;
  std::string unit;
  std::function<double()> run;  // one round; returns the figure
  std::vector<double> figures = {};
  int64_t heap = 0;  // allocations in the measured part of the last round

  double median() const {
    BZ_CHECK(!figures.empty());
    std::vector<double> sorted = figures;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Pool>
double alloc_free(Pool& pool, const std::vector<uint32_t>& order, std::vector<uint32_t>& held) {
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t& id : held) id = pool.pop();
  for (uint32_t i : order) pool.push(held[i]);
  return seconds_since(start) / static_cast<double>(order.size()) * 1e9;
}

kv::CacheConfig decode_config() {
  kv::CacheConfig config;
  config.groups.push_back({kv::CacheKind::kFull, kBlockSize, 0, {0}});
  config.num_blocks = kRows * (kTokens / kBlockSize) + 1;
  config.max_rows = kRows + 1;
  config.max_seq_len = kTokens;
  return config;
}

kv::CacheConfig three_groups() {
  kv::CacheConfig config = decode_config();
  config.groups.push_back({kv::CacheKind::kSlidingWindow, kBlockSize, 512, {0}});
  config.groups.push_back({kv::CacheKind::kState, 1, 0, {0}});
  config.groups.back().snapshot = true;
  config.num_blocks = 2 * config.num_blocks + kRows;
  return config;
}

// Every row grows from 0 to kTokens, a token a step. `per_step` is what runs after each step's appends.
struct DecodeArm {
  kv::CacheManager manager;
  kv::CachePlan plan;
  std::vector<RowId> rows;

  explicit DecodeArm(const kv::CacheConfig& config) : manager(config) { rows.reserve(kRows); }
  void admit_all() {
    rows.clear();
    while (manager.can_admit()) rows.push_back(manager.admit());
  }
  void release_all() {
    for (RowId row : rows) manager.release(row);
    finish_step();
  }
  void finish_step() {
    BZ_CHECK(manager.take_plan(plan));
    manager.processed(plan.sequence);
  }
};

double append_ours(DecodeArm& arm) {
  arm.admit_all();
  double total = 0;
  for (int32_t t = 0; t < kTokens; ++t) {
    const auto start = std::chrono::steady_clock::now();
    for (RowId row : arm.rows) arm.manager.append(row, 1);
    total += seconds_since(start);
    arm.finish_step();
  }
  arm.release_all();
  return total / (double{kRows} * kTokens) * 1e9;
}

double schedule_ours(DecodeArm& arm) {
  arm.admit_all();
  double total = 0;
  for (int32_t t = 0; t < kTokens; ++t) {
    const auto start = std::chrono::steady_clock::now();
    for (RowId row : arm.rows) {
      if (arm.manager.can_append(row, 1)) arm.manager.append(row, 1);
    }
    arm.finish_step();
    for (RowId row : arm.rows) arm.manager.set_processed(row, t + 1);
    total += seconds_since(start);
    BZ_CHECK_EQ(arm.plan.rows.size(), arm.rows.size());
  }
  arm.release_all();
  return total / kTokens * 1e6;
}

double append_least(LeastCache& cache, const std::vector<RowId>& rows) {
  double total = 0;
  for (int32_t t = 0; t < kTokens; ++t) {
    const auto start = std::chrono::steady_clock::now();
    for (RowId row : rows) cache.append(row, 1);
    total += seconds_since(start);
    cache.end_step();
  }
  cache.release_all();
  return total / (double{kRows} * kTokens) * 1e9;
}

// The bytes that name one hash block of kBlockSize tokens: the digest before it, then the tokens.
kv::Digest sha256(std::span<const uint8_t> bytes) {
  kv::Digest digest;
  static_assert(sizeof(digest) == SHA256_DIGEST_LENGTH);
  SHA256(bytes.data(), bytes.size(), reinterpret_cast<uint8_t*>(digest.words.data()));
  return digest;
}

// A cache as large as B10 asks, full of other prompts, and one prompt of 50,000 tokens.
struct PrefixArm {
  static constexpr int32_t kPrompt = 50000;
  kv::CacheManager manager;
  kv::CachePlan plan;
  kv::PrefixHit hit;
  std::vector<int32_t> tokens = std::vector<int32_t>(kPrompt + 1), copy;
  uint32_t next_token = 0;

  static kv::CacheConfig config(kv::DigestFn digest) {
    kv::CacheConfig c;
    c.digest = digest;
    c.groups.push_back({kv::CacheKind::kFull, kBlockSize, 0, {0}});
    c.num_blocks = kBlocks;
    c.max_rows = 4;
    c.max_seq_len = kPrompt + 1;
    c.prefix_cache = true;
    return c;
  }
  explicit PrefixArm(kv::DigestFn digest) : manager(config(digest)) {
    hit.path.reserve(kPrompt / kBlockSize + 1);
    for (int32_t i = 0; i <= kBlocks / (kPrompt / kBlockSize); ++i) publish();
    copy = tokens;
  }
  // A new prompt takes the place of the one used longest ago.
  double publish() {
    for (int32_t& t : tokens) t = static_cast<int32_t>(++next_token * 2654435761u >> 8);
    const auto start = std::chrono::steady_clock::now();
    const RowId row = manager.admit();
    manager.append(row, kPrompt);
    BZ_CHECK(manager.take_plan(plan));
    manager.processed(plan.sequence);
    manager.publish(row, {tokens});
    const double seconds = seconds_since(start);
    manager.release(row);
    BZ_CHECK(manager.take_plan(plan));
    manager.processed(plan.sequence);
    copy.assign(tokens.begin(), tokens.end());
    return seconds * 1e6;
  }
  double match() {
    const auto start = std::chrono::steady_clock::now();
    manager.find_prefix({tokens}, hit);
    const double seconds = seconds_since(start);
    BZ_CHECK_EQ(hit.num_tokens, kPrompt);
    return seconds * 1e6;
  }
  // Every token of the prompt must be compared with the cached one's: a digest alone is no proof (KV-3).
  double match_floor() const {
    const auto start = std::chrono::steady_clock::now();
    const int differ = std::memcmp(copy.data(), tokens.data(), kPrompt * sizeof(int32_t));
    const double seconds = seconds_since(start);
    BZ_CHECK_EQ(differ, 0);
    return seconds * 1e6;
  }
  // Publishing with SHA-256 must hash every block, chained.
  double sha256_floor() const {
    const auto start = std::chrono::steady_clock::now();
    std::array<uint8_t, sizeof(kv::Digest) + kBlockSize * sizeof(int32_t)> bytes{};
    for (size_t block = 0; block < kPrompt / kBlockSize; ++block) {
      std::memcpy(bytes.data() + sizeof(kv::Digest), &tokens[block * kBlockSize], kBlockSize * sizeof(int32_t));
      const kv::Digest digest = sha256(bytes);
      std::memcpy(bytes.data(), &digest, sizeof(digest));
    }
    asm volatile("" ::"r"(bytes.data()) : "memory");
    return seconds_since(start) * 1e6;
  }
};

struct Ratio {
  std::string name;
  double value, limit;
};

// The median over the rounds of a / b: a host moves cores and their speed between rounds, rarely inside one.
double ratio(const Arm& a, const Arm& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.figures.size(); ++i) ratios.push_back(a.figures[i] / b.figures[i]);
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

void print(const std::vector<Arm>& arms, const std::vector<Ratio>& ratios) {
  for (const Arm& a : arms) {
    const auto [low, high] = std::minmax_element(a.figures.begin(), a.figures.end());
    fmt::print("{:<28} {:>9.2f} {:<3} (min {:.2f}, max {:.2f}), {} heap allocations\n", a.name, a.median(), a.unit,
               *low, *high, a.heap);
  }
  for (const Ratio& r : ratios) {
    fmt::print("{:<28} {:>9.2f}     (goal {} {})\n", r.name, r.value, "<=", r.limit);
  }
}

void write_json(const char* path, const std::vector<Arm>& arms, const std::vector<Ratio>& ratios) {
  std::string text = "{\"B10\": {";
  for (const Arm& a : arms)
    text += fmt::format("\"{}\": {{\"median\": {:.3f}, \"unit\": \"{}\", \"heap\": {}}}, ", a.name, a.median(), a.unit,
                        a.heap);
  for (const Ratio& r : ratios)
    text += fmt::format("\"{}\": {{\"value\": {:.3f}, \"goal\": {}}}, ", r.name, r.value, r.limit);
  text += fmt::format("\"rounds\": {}}}}}\n", kRounds);
  std::FILE* file = std::fopen(path, "w");
  BZ_CHECK_MSG(file != nullptr, "cannot write {}", path);
  std::fputs(text.c_str(), file);
  std::fclose(file);
}

int run(int argc, char** argv) {
  std::vector<uint32_t> order(kBlocks - 1), held(kBlocks - 1);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  PlainList plain(kBlocks);
  StdPool peer(kBlocks);
  OurPool ours(kBlocks);
  DecodeArm append_arm(decode_config()), schedule_arm(decode_config()), three_arm(three_groups());
  PrefixArm prefix(nullptr), prefix_sha256(&sha256);
  LeastCache least(kRows, kTokens / kBlockSize, kBlockSize);
  std::vector<RowId> least_rows;
  for (int32_t row = 1; row <= kRows; ++row) least_rows.push_back(RowId(row));

  std::vector<Arm> arms;
  arms.push_back({"alloc+free", "ns", [&] { return alloc_free(ours, order, held); }});
  arms.push_back({"alloc+free floor", "ns", [&] { return alloc_free(plain, order, held); }});
  arms.push_back({"alloc+free std peer", "ns", [&] { return alloc_free(peer, order, held); }});
  arms.push_back({"append", "ns", [&] { return append_ours(append_arm); }});
  arms.push_back({"append floor", "ns", [&] { return append_least(least, least_rows); }});
  arms.push_back({"schedule 256", "us", [&] { return schedule_ours(schedule_arm); }});
  arms.push_back({"schedule 256, 3 groups", "us", [&] { return schedule_ours(three_arm); }});
  arms.push_back({"match 50k", "us", [&] { return prefix.match(); }});
  arms.push_back({"match 50k floor", "us", [&] { return prefix.match_floor(); }});
  arms.push_back({"publish and evict 50k", "us", [&] { return prefix.publish(); }});
  arms.push_back({"match 50k, SHA-256", "us", [&] { return prefix_sha256.match(); }});
  arms.push_back({"publish 50k, SHA-256", "us", [&] { return prefix_sha256.publish(); }});
  arms.push_back({"raw SHA-256 of 50k", "us", [&] { return prefix_sha256.sha256_floor(); }});

  for (Arm& a : arms) a.run();  // warm-up: vectors reach their capacity
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < arms.size(); ++i) {
      Arm& a = arms[round % 2 == 0 ? i : arms.size() - 1 - i];
      const int64_t before = bench::num_heap_allocations();
      const double figure = a.run();
      a.heap = bench::num_heap_allocations() - before;
      a.figures.push_back(figure);
    }
  }
  const std::vector<Ratio> ratios = {
      {"alloc+free / floor", ratio(arms[0], arms[1]), 1.5},
      {"alloc+free / std peer", ratio(arms[0], arms[2]), 1.0},
      {"append / floor", ratio(arms[3], arms[4]), 1.5},
      {"schedule us per 256", arms[5].median(), 25},
      {"schedule us, 3 groups", arms[6].median(), 25},
      {"match 50k us", arms[7].median(), 60},
      {"match / floor", ratio(arms[7], arms[8]), 1.5},
      {"match 50k us, SHA-256", arms[10].median(), 60},
      {"SHA-256 in publish / raw", (arms[11].median() - arms[9].median()) / arms[12].median(), 1.5}};
  print(arms, ratios);
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--json") write_json(argv[i + 1], arms, ratios);
  }
  for (size_t i : {0u, 3u, 5u, 6u, 7u, 9u, 10u, 11u}) BZ_CHECK_EQ(arms[i].heap, 0);
  return 0;
}

}  // namespace
}  // namespace bz

int main(int argc, char** argv) { return bz::run(argc, argv); }
