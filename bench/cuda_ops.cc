// What each op of a Llama step costs inside a graph: a chain of the same op, its inputs hot as in a step; the weights
// of consecutive nodes are different ones, so that they come from memory. Prints one JSON object a shape.
//
//   cuda_ops [tokens ...]        SmolLM2's shapes, Q4_1 weights, Q8_0 embedding
#include <cstdio>
#include <cstdlib>

#include "cuda/op_bench.h"
#include "device/registry.h"

namespace {

using namespace bz;
using bench::Bench;

constexpr int32_t kD = 576, kHeads = 9, kKvHeads = 3, kHd = 64, kInter = 1536, kVocab = 49152, kLayers = 30;
constexpr int32_t kBlock = 128, kContext = 320, kColumns = 4;

void run(Bench& b, int32_t tokens) {
  const ops::OpTable& ops = b.ops;
  const auto n = static_cast<size_t>(tokens);
  std::vector<kv::BlockId> table(static_cast<size_t>(tokens + 1) * kColumns, kv::BlockId(0u));
  std::vector<int32_t> width(n + 1, 0), first(n + 1, 0), zeros(n, 0), iota(n), row_index(n), seq(n, kContext),
      start(n + 1);
  std::vector<kv::SlotId> slots(n);
  for (int32_t r = 0; r < tokens; ++r) {
    width[static_cast<size_t>(r) + 1] = kColumns;
    for (int32_t c = 0; c < kColumns; ++c)
      table[static_cast<size_t>((r + 1) * kColumns + c)] = kv::BlockId(static_cast<uint32_t>(1 + r * kColumns + c));
    iota[static_cast<size_t>(r)] = r, row_index[static_cast<size_t>(r)] = r + 1;
    start[static_cast<size_t>(r) + 1] = r + 1;
    slots[static_cast<size_t>(r)] = kv::SlotId(int64_t{1 + r * kColumns + 2} * kBlock + 63);
  }
  ops::StepView v{};
  v.padded_rows = v.padded_tokens = v.padded_logits = tokens, v.num_groups = 1;
  v.num_valid_rows = b.upload(std::vector<kv::NumValidRows>(1, kv::NumValidRows(tokens)));
  v.num_valid_tokens = b.upload(std::vector<kv::NumValidTokens>(1, kv::NumValidTokens(tokens)));
  v.positions = b.upload(std::vector<int32_t>(n, kContext - 1));
  v.token_ids = v.positions, v.token_row = b.upload(iota), v.row_index = b.upload(row_index);
  v.query_start = b.upload(start), v.seq_len = b.upload(seq), v.logits_token = b.upload(iota);
  kv::GroupView& g = v.groups[0].view;
  g.table = b.upload(table), g.width = b.upload(width), g.first = b.upload(first);
  g.num_rows = tokens + 1, g.max_blocks_per_row = kColumns, g.block_size = kBlock, g.max_position = kColumns * kBlock;
  v.groups[0].slots = b.upload(slots), v.groups[0].first_visible = b.upload(zeros);
  std::vector<ops::AttentionToken> class_tokens(ops::kNumAttentionClasses * n);
  size_t token_class = 0;
  for (int32_t t = 0; t < tokens; ++t) {
    const ops::AttentionToken token = ops::attention_token(g, 0, t, t + 1, kContext - 1, kContext - 1);
    token_class = static_cast<size_t>(ops::attention_class(token, 1));
    class_tokens[token_class * n + static_cast<size_t>(t)] = token;
  }
  ops::AttentionCounts counts{};
  counts.of_class[token_class] = tokens;
  v.groups[0].attention = {b.upload(class_tokens), b.upload(std::vector<ops::AttentionCounts>(1, counts))};

  const int64_t entry = kKvHeads * kHd * 2, page = entry * kBlock, slab = 2 * page * kLayers;
  const auto memory = b.device.create_slabs({slab, tokens * kColumns + 1, device::NullGuard::kHard});
  std::vector<ops::KvLayer> layers;
  for (int i = 0; i < kLayers; ++i) {
    ops::KvLayer layer;
    layer.base = (*memory)->base();
    layer.k = {slab, 2 * i * page, entry, kBlock};
    layer.v = {slab, (2 * i + 1) * page, entry, kBlock};
    layer.num_kv_heads = kKvHeads, layer.head_dim = kHd, layer.dtype = DType::kBF16;
    layers.push_back(layer);
  }
  struct Layer {
    ops::Weight q, k, v, o, gate, up, down;
  };
  std::vector<Layer> w;
  for (int i = 0; i < kLayers; ++i) {
    w.push_back({b.weight(DType::kQ4_1, kD, kD), b.weight(DType::kQ4_1, kKvHeads * kHd, kD),
                 b.weight(DType::kQ4_1, kKvHeads * kHd, kD), b.weight(DType::kQ4_1, kD, kD),
                 b.weight(DType::kQ4_1, kInter, kD), b.weight(DType::kQ4_1, kInter, kD),
                 b.weight(DType::kQ4_1, kD, kInter)});
  }
  const ops::Weight head = b.weight(DType::kQ8_0, kVocab, kD);
  const ops::TensorRef x = b.random(tokens, kD), q = b.random(tokens, kD), attn = b.random(tokens, kD),
                       gate = b.random(tokens, kInter), cos_sin = b.random(tokens, kHd), last = b.random(tokens, kD),
                       logits = b.random(tokens, kVocab);
  const auto* norm = static_cast<const float*>(b.random(1, kD).data);
  const ops::ValidCount valid = v.num_valid_tokens;
  device::Stream& s = *b.stream;
  const size_t lent_bytes = ops.matmul_scratch_bytes(tokens, kInter);
  void* lent = b.allocate(lent_bytes);
  const auto qkv = [&](int i) {
    const Layer& l = w[static_cast<size_t>(i)];
    ops.norm_qkv(s, {x, norm, 1e-5f, l.q, l.k, l.v, q, cos_sin, ops::RopeStyle::kAdjacentPairs, v.groups[0].slots,
                     layers[static_cast<size_t>(i)], valid, lent, lent_bytes});
  };
  const auto attention = [&](int i) {
    ops.attention(s, {q, attn, kHeads, 0.125f, 0, layers[static_cast<size_t>(i)], v, nullptr, 0});
  };
  const auto o = [&](int i) {
    ops.matmul(s, {attn, {{w[static_cast<size_t>(i)].o, x}}, 1, 0, lent, lent_bytes, valid});
  };
  const auto gate_up = [&](int i) {
    const Layer& l = w[static_cast<size_t>(i)];
    ops.norm_gate_up(s, {x, norm, 1e-5f, l.gate, l.up, gate, valid, lent, lent_bytes});
  };
  const auto down = [&](int i) {
    ops.matmul(s, {gate, {{w[static_cast<size_t>(i)].down, x}}, 1, 0, lent, lent_bytes, valid});
  };
  const double layer_us = b.node_us(kLayers, [&](int i) { qkv(i), attention(i), o(i), gate_up(i), down(i); });
  std::printf(
      "{\"tokens\": %d, \"context\": %d, \"norm_qkv_us\": %.2f, \"attention_us\": %.2f, \"o_us\": %.2f, "
      "\"norm_gate_up_us\": %.2f, \"down_us\": %.2f, \"layer_us\": %.2f, \"rms_norm_us\": %.2f, \"head_us\": %.2f}\n",
      tokens, kContext, b.node_us(kLayers, qkv), b.node_us(kLayers, attention), b.node_us(kLayers, o),
      b.node_us(kLayers, gate_up), b.node_us(kLayers, down), layer_us,
      b.node_us(60, [&](int) { ops.rms_norm(s, {x, norm, last, 1e-5f, valid}); }),
      b.node_us(6, [&](int) { ops.matmul(s, {last, {{head, logits}}, 1, 0, lent, lent_bytes, valid}); }));
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = device::create_device({.name = "cuda:0"});
  if (!device.ok()) return std::fprintf(stderr, "%s\n", device.status().message().c_str()), 1;
  const auto ops = ops::op_table_for(device::DeviceKind::kCuda);
  for (int i = 1; i < std::max(argc, 2); ++i) {
    Bench b{**device, **ops};
    run(b, argc > 1 ? std::atoi(argv[i]) : 1);
  }
  return 0;
}
