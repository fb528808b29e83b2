#include "sim/simulation.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>

#include "device/registry.h"
#include "engine/engine_core.h"
#include "kv/integrity.h"
#include "ops/op_table.h"
#include "sim/cache_mixes.h"
#include "sim/shadow_model.h"
#include "sim/traffic.h"

namespace bz::sim {
namespace {

constexpr int32_t kVocab = 512;
constexpr int32_t kMaxBlocks = 64;
constexpr int32_t kMaxRequests = 8;
constexpr int32_t kPatience = 2000;  // steps without a token while there is work: it hangs
// Steps after its end in which a request may still be in a step that runs.
constexpr int32_t kAfterlife = 8;

std::atomic<uint64_t> g_seed{0};
std::atomic<int32_t> g_step{0};

kv::Digest everything_collides(std::span<const uint8_t>) { return {{1, 2, 3, 4}}; }

struct Setting {
  const CacheMix* mix = nullptr;
  int32_t num_blocks = 0;
  engine::SchedulerConfig scheduler;
  kv::CacheConfig cache;
  engine::RunnerConfig runner;
  TrafficConfig traffic;
  int32_t max_in_flight = 1;
  int32_t dummy_percent = 0;

  std::string words() const {
    return fmt::format(
        "cache of {} ({} blocks, prefix cache {}), {} requests, {} tokens and {} drafts a step, {} in flight",
        mix->name, num_blocks, cache.prefix_cache ? "on" : "off", scheduler.max_num_seqs,
        scheduler.max_num_batched_tokens, cache.num_spec, max_in_flight);
  }
};

// The rings here have no room for drafts (RING-1), and the shadow keeps one state of a row.
bool drafts_fit(const CacheMix& mix) {
  return std::none_of(mix.groups.begin(), mix.groups.end(), [](const kv::GroupSpec& g) {
    return g.kind == kv::CacheKind::kRing || g.kind == kv::CacheKind::kState;
  });
}

Setting choose_setting(uint64_t seed) {
  Random random(seed);
  Setting s;
  s.mix = &cache_mixes()[static_cast<size_t>(random.next() % cache_mixes().size())];
  s.num_blocks = random.between(20, kMaxBlocks) + 1;  // and the null block
  s.max_in_flight = random.between(1, 2);
  s.dummy_percent = random.chance(50) ? random.between(0, 10) : 0;

  const int32_t max_model_len = random.between(16, 128);
  s.scheduler.max_num_seqs = random.between(1, kMaxRequests);
  s.scheduler.max_num_batched_tokens = s.scheduler.max_num_seqs + random.skewed(0, 40);
  s.scheduler.max_model_len = max_model_len;
  s.scheduler.end_token_ids = {1, 2, 3, 4, 5};

  s.runner.limits.max_tokens = s.scheduler.max_num_batched_tokens;
  s.runner.limits.max_rows = s.scheduler.max_num_seqs;
  s.runner.limits.max_changes = random.chance(50) ? random.between(1, 16) : 256;  // few: change plans (PAD-10)
  s.runner.limits.max_history = max_model_len;
  s.runner.mode = random.chance(80) ? engine::GraphMode::kFull : engine::GraphMode::kNone;

  s.cache = kv::make_cache_config(layout_of(*s.mix, s.num_blocks), s.scheduler.max_num_seqs + 1, max_model_len);
  s.cache.max_changes_per_plan = s.runner.limits.max_changes;
  s.cache.max_in_flight = 2 * s.scheduler.max_num_batched_tokens;  // as many steps: a window's rows are narrow
  s.cache.prefix_cache = random.chance(75);
  s.cache.hash_key = random.next();
  if (random.chance(10)) s.cache.digest = everything_collides;  // costs time, never a wrong hit (KV-3)

  if (drafts_fit(*s.mix) && random.chance(50)) s.cache.num_spec = random.between(1, 4);

  s.runner.limits.max_copies = kv::max_copies_per_plan(s.cache, s.runner.limits.max_tokens);
  s.runner.cache = s.cache;

  s.traffic.vocab_size = kVocab;
  s.traffic.max_model_len = max_model_len;
  s.traffic.end_token_ids = s.scheduler.end_token_ids;
  s.traffic.mean_gap = random.skewed(200, 6000);
  s.traffic.share_percent = random.between(0, 90);
  s.traffic.cancel_percent = random.skewed(0, 40);
  s.traffic.ignore_eos_percent = random.between(0, 100);
  s.traffic.fork_percent = random.chance(50) ? random.between(0, 60) : 0;
  return s;
}

// The part of a start that cannot go wrong here.
template <class T>
T must(Result<T> result) {
  return std::move(result).value();
}

class Simulation {
 public:
  Simulation(uint64_t seed, const Setting& setting)
      : setting_(setting),
        random_(~seed),
        traffic_(seed, setting.traffic),
        device_(must(device::create_device({.name = "null"}))),
        model_(setting.mix->groups, kVocab, setting.scheduler.max_model_len),
        runner_(must(engine::GraphRunner::create(*device_, *must(ops::op_table_for(device::DeviceKind::kNull)), model_,
                                                 layout_of(*setting.mix, setting.num_blocks), setting.runner))),
        core_(*runner_, setting.scheduler, setting.cache, nullptr) {
    model_.set_memory(runner_->memory().sample_params({}), runner_->slabs());
    core_.set_max_in_flight(setting.max_in_flight);
  }

  // False: something is wrong; report() says what.
  bool step(bool arrivals) {
    if (arrivals) arrive();
    leave();
    if (random_.chance(setting_.dummy_percent)) {
      core_.dummy_step(random_.between(1, setting_.runner.limits.max_rows));
    }
    if (!core_.step() && arrivals) now_ = std::max(now_, traffic_.next_arrival());
    now_ += 300 + random_.between(0, 100);
    check();
    settle();
    return report_.failure.empty();
  }
  bool idle() const { return clients_.empty() && !core_.has_work(); }

  // With nothing left to do every block must be back.
  void check_end() {
    const kv::CacheManager& cache = core_.scheduler().cache();
    if (cache.num_free_blocks() != cache.num_usable_blocks()) {
      fail(fmt::format("{} of {} blocks are free at the end", cache.num_free_blocks(), cache.num_usable_blocks()));
    }
    if (cache.num_rows_in_use() != 0) fail(fmt::format("{} rows are in use at the end", cache.num_rows_in_use()));
  }

  SimReport report() const {
    SimReport r = report_;
    const engine::Scheduler::Counters& c = core_.scheduler().counters();
    r.preempted = c.preempted;
    r.draft_tokens = c.draft_tokens;
    r.accepted_tokens = c.accepted_tokens;
    r.prefix_hit_tokens = c.prefix_hit_tokens;
    r.setting = setting_.words();
    return r;
  }
  void fail(std::string what) {
    if (report_.failure.empty()) report_.failure = std::move(what);
  }

 private:
  void arrive() {
    while (const auto choices = traffic_.arrival(now_)) {
      if (clients_.size() >= 2 * kMaxRequests) continue;  // turned away at the door
      if (!core_.check(choices->request()).ok()) {
        ++report_.refused;
        continue;
      }
      for (const auto& client : choices->clients()) {
        client->id = engine::RequestId(++num_requests_);
        model_.expect(client);
        clients_.push_back(client);
      }
      core_.add(choices->clients().front()->id, choices->request(), choices);
      ++report_.requests;
      report_.forks += static_cast<int64_t>(choices->clients().size()) - 1;
    }
  }

  void leave() {
    for (const auto& client : clients_) {
      if (client->leaves_at == 0 || client->leaves_at > now_ || client->finished()) continue;
      client->leave();
      if (core_.cancel(client->id)) ++report_.cancelled;
      if (!client->finished()) fail(fmt::format("request {} was cancelled but has not ended", client->id.value()));
    }
  }

  void check() {
    const engine::EngineStats stats = core_.stats();
    if (!stats.alive) return fail(fmt::format("the engine stopped: {}; {}", stats.failure, model_.error()));
    if (!model_.error().empty()) return fail(model_.error());
    const kv::CacheManager& cache = core_.scheduler().cache();
    for (const std::string& line : kv::check_integrity(cache)) fail(line);
    if (cache.pending_changes().empty()) check_device_tables(cache);
    int64_t received = 0;
    for (const auto& client : clients_) {
      received += client->num_received();
      if (!client->error().empty()) fail(client->error());
    }
    const bool progress = received != last_received_ || clients_.empty();
    last_received_ = received;
    steps_without_progress_ = progress ? 0 : steps_without_progress_ + 1;
    if (steps_without_progress_ > kPatience) fail("no request has had a token for a long time");
  }

  // Nothing is on its way: the tables that prepare keeps must read as the host's do (PAD-3, PAD-10).
  void check_device_tables(const kv::CacheManager& cache) {
    const ops::StepView view = runner_->view({});
    for (int32_t g = 0; g < view.num_groups; ++g) {
      const kv::GroupView& device = view.groups[g].view;
      const kv::GroupView host = cache.tables().view(kv::GroupId(g));
      for (int32_t r = 0; r < host.num_rows; ++r) {
        bool same = device.width[r] == host.width[r] && device.first[r] == host.first[r];
        for (int32_t c = host.first[r]; same && c < host.width[r]; ++c) {
          same = kv::block_at(device, kv::RowId(r), c) == kv::block_at(host, kv::RowId(r), c);
        }
        if (!same) fail(fmt::format("row {} of group {} on the device is not the host's", r, g));
      }
    }
  }

  // Forgets clients whose answers have ended, once no step can know them any more.
  void settle() {
    ++step_;
    const auto ended = [&](const std::shared_ptr<Client>& client) {
      if (!client->finished()) return false;
      report_.tokens += client->num_received();
      departed_.push_back({step_ + kAfterlife, client->seed()});
      return true;
    };
    std::erase_if(clients_, ended);
    for (; !departed_.empty() && departed_.front().at <= step_; departed_.pop_front()) {
      model_.forget(departed_.front().seed);
    }
  }

  struct Departed {
    int32_t at;
    uint64_t seed;
  };

  Setting setting_;
  Random random_;
  Traffic traffic_;
  std::unique_ptr<device::Device> device_;
  ShadowModel model_;
  std::unique_ptr<engine::GraphRunner> runner_;
  engine::EngineCore core_;
  Microseconds now_ = 0;
  uint64_t num_requests_ = 0;
  int32_t step_ = 0;
  std::vector<std::shared_ptr<Client>> clients_;
  std::deque<Departed> departed_;
  int64_t last_received_ = 0;
  int32_t steps_without_progress_ = 0;
  SimReport report_;
};

}  // namespace

SimReport& SimReport::operator+=(const SimReport& other) {
  requests += other.requests;
  refused += other.refused;
  tokens += other.tokens;
  cancelled += other.cancelled;
  forks += other.forks;
  preempted += other.preempted;
  draft_tokens += other.draft_tokens;
  accepted_tokens += other.accepted_tokens;
  prefix_hit_tokens += other.prefix_hit_tokens;
  return *this;
}

SimPosition current_position() { return {g_seed, g_step}; }

SimReport simulate(uint64_t seed, int32_t steps) {
  g_seed = seed;
  g_step = 0;
  Simulation simulation(seed, choose_setting(seed));
  int32_t step = 0;
  bool well = true;
  while (well && (step < steps || !simulation.idle())) {
    g_step = ++step;
    well = simulation.step(step <= steps);
  }
  if (well) simulation.check_end();
  SimReport report = simulation.report();
  report.step = step;
  return report;
}

}  // namespace bz::sim
