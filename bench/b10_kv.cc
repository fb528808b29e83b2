// B10: the cache manager on the CPU, beside floors measured in the same run (arms interleaved, medians).
//
//   alloc+free   131,072 blocks taken and given back in random order; ns per pair
//                floor: a plain intrusive list, two links and a reference count a node, no checks; peer: std::list +
//                std::unordered_map
//   append       256 rows grow a token at a time to 1,024 tokens; ns per append
//                floor: a counter and a span; at a block boundary a pop, a store, and the two changes a device needs
//   schedule     one decode step of 256 sequences: ask, append, plan, processed; us per step; gate 25 us; the same with
//                three groups (full, sliding window, state), windows moving
//   prefix       a prompt of 50,000 tokens in a full cache: found, whole; published, which evicts as many blocks; us
//                floor of the match: comparing the tokens and hashing them once, chained
//
// Heap allocations of the measured parts are counted and must be 0 (ENG-3).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <list>
#include <new>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "kv/cache_manager.h"

namespace {
int64_t g_heap_allocations = 0;
}
void* operator new(std::size_t bytes) {
  ++g_heap_allocations;
  if (void* p = std::malloc(bytes)) return p;
  std::abort();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace bz {
namespace {

using kv::BlockId;
using kv::RowId;

constexpr int kRounds = 9;
constexpr int32_t kBlocks = 131072;
constexpr int32_t kRows = 256;
constexpr int32_t kTokens = 1024;
constexpr int32_t kBlockSize = 16;

// ---- the floors and the peer ----

// Two links and a count a node; node 0 is the sentinel.
class PlainList {
 public:
  explicit PlainList(uint32_t n) : links_(n) {
    for (uint32_t i = 1; i < n; ++i) push(i);
  }
  uint32_t pop() {
    const uint32_t id = links_[0].next;
    links_[0].next = links_[id].next;
    links_[links_[id].next].prev = 0;
    links_[id].ref = 1;
    return id;
  }
  void push(uint32_t id) {
    if (--links_[id].ref > 0) return;
    const uint32_t last = links_[0].prev;
    links_[id].prev = last;
    links_[id].next = 0;
    links_[last].next = id;
    links_[0].prev = id;
  }

 private:
  struct Link {
    uint32_t prev = 0, next = 0;
    int32_t ref = 1;
  };
  std::vector<Link> links_;
};

// What comes first to mind: a list of free ids, and a map from an id to its owner count.
class StdPool {
 public:
  explicit StdPool(uint32_t n) {
    for (uint32_t i = 1; i < n; ++i) free_.push_back(i);
  }
  uint32_t pop() {
    const uint32_t id = free_.front();
    free_.pop_front();
    owners_.emplace(id, 1);
    return id;
  }
  void push(uint32_t id) {
    owners_.erase(id);
    free_.push_back(id);
  }

 private:
  std::list<uint32_t> free_;
  std::unordered_map<uint32_t, int> owners_;
};

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

// The least that any such manager does: count, and store a fresh id at a boundary.
struct DecodeFloor {
  PlainList list{kRows * (kTokens / kBlockSize) + 1};
  std::vector<int32_t> lengths = std::vector<int32_t>(kRows);
  std::vector<uint32_t> table = std::vector<uint32_t>(size_t{kRows} * (kTokens / kBlockSize));
  std::vector<kv::RowSpan> spans = std::vector<kv::RowSpan>(kRows);
  std::vector<kv::TableChange> changes = std::vector<kv::TableChange>(2 * kRows);

  double run() {
    std::fill(lengths.begin(), lengths.end(), 0);
    double total = 0;
    for (int32_t t = 0; t < kTokens; ++t) {
      const auto start = std::chrono::steady_clock::now();
      size_t n = 0;
      for (int32_t r = 0; r < kRows; ++r) {
        const int32_t pos = lengths[static_cast<size_t>(r)]++;
        spans[static_cast<size_t>(r)] = {RowId(r), pos, 1};
        if (pos % kBlockSize != 0) continue;
        const int32_t column = pos / kBlockSize;
        const uint32_t id = list.pop();
        table[static_cast<size_t>(r * (kTokens / kBlockSize) + column)] = id;
        changes[n++] = {kv::ChangeKind::kBlock, kv::GroupId(0), RowId(r), column, id};
        changes[n++] = {kv::ChangeKind::kWidth, kv::GroupId(0), RowId(r), 0, static_cast<uint32_t>(column + 1)};
      }
      asm volatile("" ::"r"(spans.data()), "r"(table.data()), "r"(changes.data()) : "memory");
      total += seconds_since(start);
    }
    for (uint32_t id : table) list.push(id);
    return total;
  }
};

// A cache as large as B10 asks, full of other prompts, and one prompt of 50,000 tokens.
struct PrefixArm {
  static constexpr int32_t kPrompt = 50000;
  kv::CacheManager manager;
  kv::CachePlan plan;
  kv::PrefixHit hit;
  std::vector<int32_t> tokens = std::vector<int32_t>(kPrompt + 1), copy;
  uint32_t next_token = 0;

  static kv::CacheConfig config() {
    kv::CacheConfig c;
    c.groups.push_back({kv::CacheKind::kFull, kBlockSize, 0, {0}});
    c.num_blocks = kBlocks;
    c.max_rows = 4;
    c.max_seq_len = kPrompt + 1;
    c.prefix_cache = true;
    return c;
  }
  PrefixArm() : manager(config()) {
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
  double match_floor() {
    const auto start = std::chrono::steady_clock::now();
    uint64_t h = std::memcmp(copy.data(), tokens.data(), kPrompt * sizeof(int32_t)) == 0 ? 1 : 2;
    for (int32_t block = 0; block < kPrompt; block += kBlockSize) {
      for (int32_t i = block; i < block + kBlockSize; i += 4) {
        uint64_t pair[2];
        std::memcpy(pair, &tokens[static_cast<size_t>(i)], sizeof(pair));
        __extension__ const unsigned __int128 product =
            static_cast<unsigned __int128>(h ^ pair[0]) * (pair[1] ^ 0x9e3779b97f4a7c15u);
        h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
      }
    }
    asm volatile("" ::"r"(h) : "memory");
    return seconds_since(start) * 1e6;
  }
};

struct Ratio {
  std::string name;
  double value, limit;
};

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
  PrefixArm prefix;
  DecodeFloor floor;

  std::vector<Arm> arms;
  arms.push_back({"alloc+free", "ns", [&] { return alloc_free(ours, order, held); }});
  arms.push_back({"alloc+free floor", "ns", [&] { return alloc_free(plain, order, held); }});
  arms.push_back({"alloc+free std peer", "ns", [&] { return alloc_free(peer, order, held); }});
  arms.push_back({"append", "ns", [&] { return append_ours(append_arm); }});
  arms.push_back({"append floor", "ns", [&] { return floor.run() / (double{kRows} * kTokens) * 1e9; }});
  arms.push_back({"schedule 256", "us", [&] { return schedule_ours(schedule_arm); }});
  arms.push_back({"schedule 256, 3 groups", "us", [&] { return schedule_ours(three_arm); }});
  arms.push_back({"match 50k", "us", [&] { return prefix.match(); }});
  arms.push_back({"match 50k floor", "us", [&] { return prefix.match_floor(); }});
  arms.push_back({"publish and evict 50k", "us", [&] { return prefix.publish(); }});

  for (Arm& a : arms) a.run();  // warm-up: vectors reach their capacity
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < arms.size(); ++i) {
      Arm& a = arms[round % 2 == 0 ? i : arms.size() - 1 - i];
      const int64_t before = g_heap_allocations;
      const double figure = a.run();
      a.heap = g_heap_allocations - before;
      a.figures.push_back(figure);
    }
  }
  const std::vector<Ratio> ratios = {{"alloc+free / floor", arms[0].median() / arms[1].median(), 1.5},
                                     {"alloc+free / std peer", arms[0].median() / arms[2].median(), 1.0},
                                     {"append / floor", arms[3].median() / arms[4].median(), 1.5},
                                     {"schedule us per 256", arms[5].median(), 25},
                                     {"schedule us, 3 groups", arms[6].median(), 25},
                                     {"match 50k us", arms[7].median(), 60},
                                     {"match / floor", arms[7].median() / arms[8].median(), 1.5}};
  print(arms, ratios);
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) == "--json") write_json(argv[i + 1], arms, ratios);
  }
  for (size_t i : {0u, 3u, 5u, 6u, 7u, 9u}) BZ_CHECK_EQ(arms[i].heap, 0);
  return 0;
}

}  // namespace
}  // namespace bz

int main(int argc, char** argv) { return bz::run(argc, argv); }
