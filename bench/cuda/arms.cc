// Our CUDA ops as a C library, so that they run in the process of their peers (bench/cuda/*.py): the caller owns all
// memory and captures what is enqueued here into its own graphs, on the stream that this library makes.
#include <cstdio>
#include <cstdlib>

#include "device/cuda/cuda_stream.h"
#include "device/registry.h"
#include "ops/cuda/attention.h"
#include "ops/op_table.h"

namespace {

using namespace bz;

struct Backend {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::vector<std::unique_ptr<device::SlabMemory>> slabs;
};

Backend& backend() {
  static Backend b = [] {
    auto device = device::create_device({.name = "cuda:0"});
    if (!device.ok()) std::fprintf(stderr, "%s\n", device.status().message().c_str()), std::exit(1);
    Backend made{std::move(*device), nullptr, {}};
    made.stream = made.device->create_stream();
    return made;
  }();
  return b;
}

}  // namespace

extern "C" {

// One step's attention: row r of the batch is table row r + 1. All pointers on the device.
struct AttentionArm {
  void *q, *out;                                                  // f32 [tokens, heads * head_dim]
  void* base;                                                     // of block 0
  const void* table;                                              // u32 [rows + 1, columns]
  const void *width, *first;                                      // i32 [rows + 1]
  const void *positions, *token_row;                              // i32 [tokens]
  const void *row_index, *query_start, *seq_len, *first_visible;  // i32 [rows] (+ 1)
  const void* num_valid_rows;                                     // i32 [1]
  void *class_tokens, *class_counts;                              // ops::AttentionLists
  int64_t block_stride, k_offset, v_offset, entry_bytes;
  int32_t rows, tokens, heads, kv_heads, head_dim, block_size, columns, max_position;
  int32_t cluster;  // 0: as the engine chooses
  int32_t batch_invariant;
  float scale;
};

// Slabs of the engine's own memory, kept to the end: base of block 0. guard: 0 off, 1 read-only, 2 hard.
void* bz_slabs(int64_t stride, int64_t blocks, int32_t guard) {
  constexpr device::NullGuard kGuards[] = {device::NullGuard::kOff, device::NullGuard::kReadOnly,
                                           device::NullGuard::kHard};
  auto slabs = backend().device->create_slabs({stride, blocks, kGuards[guard]});
  if (!slabs.ok()) std::fprintf(stderr, "%s\n", slabs.status().message().c_str()), std::exit(1);
  backend().slabs.push_back(std::move(*slabs));
  return backend().slabs.back()->base();
}
void bz_upload(void* to, const void* from, int64_t bytes) {
  backend().device->copy_to_device(to, from, static_cast<size_t>(bytes));
}

void* bz_stream() { return static_cast<device::cuda::CudaStream&>(*backend().stream).handle(); }

// What prepare lists of a token of a cache without a window, and its class. to: ops::AttentionToken.
int32_t bz_attention_token(void* to, int32_t token, int32_t table_row, int32_t query_len, int32_t position,
                           int32_t num_computed) {
  auto& made = *static_cast<ops::AttentionToken*>(to);
  made = ops::attention_token({}, 0, token, table_row, position, num_computed);
  return static_cast<int32_t>(ops::attention_class(made, query_len));
}

void bz_attention(const AttentionArm* a) {
  ops::AttentionParams p{};
  p.q = ops::tensor_f32(a->q, a->tokens, a->heads * a->head_dim);
  p.out = ops::tensor_f32(a->out, a->tokens, a->heads * a->head_dim);
  p.num_heads = a->heads, p.scale = a->scale;
  ops::KvLayer& layer = p.layer;
  layer.base = static_cast<std::byte*>(a->base);
  layer.k = {a->block_stride, a->k_offset, a->entry_bytes, a->block_size};
  layer.v = {a->block_stride, a->v_offset, a->entry_bytes, a->block_size};
  layer.num_kv_heads = a->kv_heads, layer.head_dim = a->head_dim, layer.dtype = DType::kBF16;
  ops::StepView& v = p.view;
  v.padded_rows = v.padded_logits = a->rows, v.padded_tokens = a->tokens, v.num_groups = 1;
  v.num_valid_rows = static_cast<const kv::NumValidRows*>(a->num_valid_rows);
  const auto ints = [](const void* q) { return static_cast<const int32_t*>(q); };
  v.positions = ints(a->positions), v.token_row = ints(a->token_row), v.row_index = ints(a->row_index);
  v.query_start = ints(a->query_start), v.seq_len = ints(a->seq_len);
  v.groups[0].first_visible = const_cast<int32_t*>(ints(a->first_visible));
  v.groups[0].attention = {static_cast<ops::AttentionToken*>(a->class_tokens),
                           static_cast<ops::AttentionCounts*>(a->class_counts)};
  kv::GroupView& g = v.groups[0].view;
  g.table = static_cast<const kv::BlockId*>(a->table), g.width = ints(a->width), g.first = ints(a->first);
  g.num_rows = a->rows + 1, g.max_blocks_per_row = a->columns;
  g.block_size = a->block_size, g.max_position = a->max_position;
  device::Stream& stream = *backend().stream;
  if (a->cluster > 0) return ops::cuda::attention_in_clusters(stream, p, a->cluster);
  (*ops::op_table_for(device::DeviceKind::kCuda, a->batch_invariant != 0))->attention(stream, p);
}

// out: bf16 [rows, cols].
void bz_zero_rows(void* out, int32_t rows, int32_t cols, const int32_t* seq_len) {
  (*ops::op_table_for(device::DeviceKind::kCuda))
      ->zero_rows(*backend().stream, {{out, DType::kBF16, rows, cols, cols}, seq_len, nullptr});
}

}  // extern "C"
