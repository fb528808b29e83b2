#include "support/every_kind_model.h"

#include <algorithm>
#include <limits>

#include "device/cpu/cpu_stream.h"

namespace bz::test {
namespace {

using kv::CacheKind;
using kv::RowId;

constexpr int kFullLayer = 0;  // its entries are what the others' are compared with
constexpr int kNumLayers = 8;
constexpr uint64_t kEmpty = 1;  // the hash of no tokens

uint64_t extend(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint64_t>(token)) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}
int32_t token_of(uint64_t hash) { return static_cast<int32_t>(hash % kEveryKindVocab); }

kv::LayerSpec layer(int32_t i, CacheKind kind, int32_t window, int32_t ratio) {
  kv::LayerSpec spec{kind, i, {sizeof(uint64_t), 0}};
  spec.window = window;
  spec.ratio = ratio;
  return spec;
}

struct Params {
  ops::StepView view;
  ops::KvLayer layers[kNumLayers];
  int32_t groups[kNumLayers];
  CacheKind kinds[kNumLayers];
  ops::TensorRef logits;  // [L, V]
};

// One batch row's part of the forward.
class RowForward {
 public:
  RowForward(const Params& p, int32_t b)
      : p_(p),
        b_(b),
        row_(p.view.row_index[b]),
        begin_(p.view.query_start[b]),
        end_(p.view.query_start[b + 1]),
        start_(p.view.seq_len[b] - (end_ - begin_)) {}

  // hash_of_token: [T] out.
  bool run(uint64_t* hash_of_token) {
    uint64_t hash = start_ == 0 ? kEmpty : truth(start_ - 1);
    for (int i = 0; i < kNumLayers; ++i) check_before(i, hash);
    for (int32_t t = begin_; t < end_; ++t) {
      hash = hash_of_token[t] = extend(hash, p_.view.token_ids[t]);
      for (int i = 0; i < kNumLayers; ++i) {
        const kv::SlotId slot = step(i).slots[t];
        if (slot != kv::kPadSlot) at(i, slot) = hash;
      }
    }
    for (int i = 0; i < kNumLayers; ++i) {
      if (p_.kinds[i] == CacheKind::kState) state(i) = hash;
      for (int32_t t = begin_; t < end_; ++t) check_visible(i, p_.view.positions[t]);
    }
    return ok_;
  }

 private:
  const ops::GroupStep& step(int i) const { return p_.view.groups[p_.groups[i]]; }
  uint64_t& at(int i, kv::SlotId slot) const {
    return *reinterpret_cast<uint64_t*>(p_.layers[i].base + kv::entry_offset(p_.layers[i].k, slot).value());
  }
  uint64_t& state(int i) const {
    const kv::BlockId block(step(i).states[b_ * p_.view.states_per_row].value());
    return *reinterpret_cast<uint64_t*>(p_.layers[i].base + kv::page_offset(p_.layers[i].k, block).value());
  }
  uint64_t truth(int32_t position) const {
    return at(kFullLayer, kv::entry_slot(step(kFullLayer).view, RowId(row_), position));
  }
  void expect(int i, int32_t entry, int32_t position) {
    const kv::SlotId slot = kv::entry_slot(step(i).view, RowId(row_), entry);
    ok_ = ok_ && slot != kv::kPadSlot && at(i, slot) == truth(position);
  }
  // What a layer must have kept from earlier steps: a ring its open window, a state itself.
  void check_before(int i, uint64_t hash) {
    if (p_.kinds[i] == CacheKind::kState) ok_ = ok_ && (start_ == 0 || state(i) == hash);
    if (p_.kinds[i] != CacheKind::kRing) return;
    for (int32_t q = start_ / step(i).view.ratio * step(i).view.ratio; q < start_; ++q) expect(i, q, q);
  }
  // Everything that a query at a position sees.
  void check_visible(int i, int32_t position) {
    const kv::GroupView& view = step(i).view;
    switch (p_.kinds[i]) {
      case CacheKind::kSlidingWindow:
      case CacheKind::kChunkedLocal: {
        const int32_t first = std::max(step(i).first_visible[b_], kv::first_visible(view, position));
        for (int32_t q = first; q <= position; ++q) expect(i, q, q);
        break;
      }
      case CacheKind::kCompressed:
        for (int32_t e = 0; e < (position + 1) / view.ratio; ++e) expect(i, e, (e + 1) * view.ratio - 1);
        break;
      default: break;
    }
  }

  const Params& p_;
  int32_t b_, row_, begin_, end_, start_;
  bool ok_ = true;
};

void forward_kernel(const Params& p, device::cpu::Worker& worker) {
  if (worker.index() != 0) return;
  std::vector<uint64_t> hash(static_cast<size_t>(p.view.padded_tokens), 0);
  std::vector<bool> ok(static_cast<size_t>(p.view.padded_rows), true);
  for (int32_t b = 0; b < p.view.padded_rows; ++b) {
    if (p.view.seq_len[b] > 0) ok[static_cast<size_t>(b)] = RowForward(p, b).run(hash.data());
  }
  for (int32_t l = 0; l < p.view.padded_logits; ++l) {
    float* row = p.logits.row<float>(l);
    std::fill_n(row, p.logits.cols, 0.0f);
    const int32_t t = p.view.logits_token[l];
    if (t < 0) continue;
    const bool good = ok[static_cast<size_t>(p.view.token_row[t])];
    row[token_of(hash[static_cast<size_t>(t)])] = good ? 1.0f : std::numeric_limits<float>::quiet_NaN();
  }
}

class EveryKindModel final : public models::Model {
 public:
  EveryKindModel(int32_t max_model_len, int32_t num_spec, bool large) : max_model_len_(max_model_len) {
    specs_ = {layer(0, CacheKind::kFull, 0, 1),          layer(1, CacheKind::kSlidingWindow, 6, 1),
              layer(2, CacheKind::kChunkedLocal, 12, 1), layer(3, CacheKind::kCompressed, 0, 4),
              layer(4, CacheKind::kRing, 0, 4),          layer(5, CacheKind::kRing, 0, 4),
              layer(6, CacheKind::kRing, 0, 2),          layer(7, CacheKind::kState, 0, 1)};
    specs_[4].capacity = kv::pool_ring(4, num_spec);             // GLM-5.3's tail
    specs_[5].capacity = kv::qsa_ring(4, num_spec, 16) + 4;      // Qwen4's ring, apart from the tail
    specs_[6].capacity = kv::compressor_ring_v41(num_spec) * 2;  // DeepSeek-V4.1's
    specs_[7].snapshot = true;
    if (large) specs_[0].entry_bytes[0] = 192, specs_[7].entry_bytes[0] = 1024;
  }
  int32_t vocab_size() const override { return kEveryKindVocab; }
  int32_t max_model_len() const override { return max_model_len_; }
  std::vector<kv::LayerSpec> cache_specs() const override { return specs_; }
  ops::KvLayer kv_layer(int32_t) const override { return {}; }
  Status reserve(device::Device&, const ops::OpTable&, int32_t, int32_t) override { return ok_status(); }
  int64_t weight_bytes() const override { return 0; }
  void forward(const models::ForwardContext& ctx) override {
    Params p{};
    p.view = ctx.view;
    p.logits = ctx.logits;
    for (size_t i = 0; i < kNumLayers; ++i) {
      p.layers[i] = ctx.kv_layers[i];
      p.groups[i] = ctx.kv_groups[i];
      p.kinds[i] = specs_[i].kind;
    }
    device::cpu::enqueue(ctx.stream, "every_kind", p, &forward_kernel);
  }

 private:
  int32_t max_model_len_;
  std::vector<kv::LayerSpec> specs_;
};

}  // namespace

std::unique_ptr<models::Model> every_kind_model(int32_t max_model_len, int32_t num_spec, bool large) {
  return std::make_unique<EveryKindModel>(max_model_len, num_spec, large);
}

std::vector<int32_t> next_tokens(const std::vector<int32_t>& prompt, int32_t count) {
  uint64_t hash = kEmpty;
  for (int32_t token : prompt) hash = extend(hash, token);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(token_of(hash));
    hash = extend(hash, tokens.back());
  }
  return tokens;
}

}  // namespace bz::test
