#include "models/llama_activations.h"

#include <algorithm>

#include "base/math.h"

namespace bz::models {

Result<LlamaActivations> make_llama_activations(const ModelConfig& config, device::Device& device,
                                                const ops::OpTable& ops, int32_t max_tokens, int32_t max_rows) {
  LlamaActivations a;
  const int64_t t = max_tokens;
  const int64_t q_dim = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv_dim = int64_t{config.num_kv_heads} * config.head_dim;
  const int64_t d = config.hidden_size;
  const int64_t inter = config.intermediate_size;
  a.scratch_bytes =
      ops.matmul_scratch_bytes(std::max(max_tokens, max_rows),
                               std::max({config.hidden_size, config.intermediate_size, static_cast<int32_t>(q_dim)}));
  struct Piece {
    void** address;
    int64_t bytes;
  };
  const auto f32 = [](float** p, int64_t n) { return Piece{reinterpret_cast<void**>(p), n * 4}; };
  const Piece pieces[] = {
      f32(&a.x, t * d),
      f32(&a.h, t * d),
      f32(&a.q, t * q_dim),
      f32(&a.k, t * kv_dim),
      f32(&a.v, t * kv_dim),
      f32(&a.attn, t * q_dim),
      f32(&a.gate, t * inter),
      f32(&a.up, t * inter),
      f32(&a.cos_sin, t * config.head_dim),
      f32(&a.last, std::max<int64_t>(t, max_rows) * d),
      {&a.scratch, static_cast<int64_t>(a.scratch_bytes)},
      {reinterpret_cast<void**>(&a.inv_freq), config.head_dim / 2 * 8},
  };
  int64_t total = 0;
  for (const Piece& p : pieces) total += round_up<int64_t>(p.bytes, 128);
  BZ_ASSIGN(a.memory, device.allocate(static_cast<size_t>(total)));
  std::byte* next = a.memory.device();
  for (const Piece& p : pieces) {
    *p.address = next;
    next += round_up<int64_t>(p.bytes, 128);
  }
  const std::vector<double> inv_freq = rope_inv_freq(config.rope);
  device.copy_to_device(a.inv_freq, inv_freq.data(), inv_freq.size() * sizeof(double));
  return a;
}

}  // namespace bz::models
