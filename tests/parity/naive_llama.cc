#include "parity/naive_llama.h"

#include <cmath>
#include <string>

namespace bz::test {
namespace {

using Vector = std::vector<double>;

class NaiveLlama {
 public:
  NaiveLlama(const formats::GgufFile& file, const models::ModelConfig& config) : file_(file), c_(config) {}

  std::vector<Vector> forward(const std::vector<int32_t>& ids) {
    std::vector<Vector> x;
    for (const int32_t id : ids) x.push_back(row("token_embd.weight", id));
    for (int32_t layer = 0; layer < c_.num_layers; ++layer) {
      prefix_ = "blk." + std::to_string(layer) + ".";
      attention(x);
      for (Vector& token : x) add(token, feed_forward(token));
    }
    prefix_.clear();
    for (Vector& token : x) {
      token = matmul(c_.tie_embeddings ? "token_embd.weight" : "output.weight", norm(token, "output_norm.weight"));
    }
    return x;
  }

 private:
  const float* data(const std::string& name) const {
    return reinterpret_cast<const float*>(file_.get_tensor(prefix_ + name).value()->data);
  }
  Vector row(const std::string& name, int32_t index) const {
    const float* begin = data(name) + static_cast<int64_t>(index) * c_.hidden_size;
    return {begin, begin + c_.hidden_size};
  }
  Vector matmul(const std::string& name, const Vector& x) const {
    const auto rows = static_cast<size_t>(file_.get_tensor(prefix_ + name).value()->dims[1]);
    const float* w = data(name);
    Vector out(rows);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < x.size(); ++i) out[r] += w[r * x.size() + i] * x[i];
    }
    return out;
  }
  Vector norm(const Vector& x, const std::string& name) const {
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + static_cast<double>(c_.rms_norm_eps));
    const float* w = data(name);
    Vector out(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * w[i];
    return out;
  }
  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  // Pairs (2i, 2i + 1) of a head turn by position * theta^(-2i / head_dim).
  void rotate(Vector& heads, size_t position) const {
    for (size_t i = 0; i < heads.size(); i += 2) {
      const double in_head = static_cast<double>(i % static_cast<size_t>(c_.head_dim));
      const double angle = static_cast<double>(position) * std::pow(c_.rope.theta, -in_head / c_.head_dim);
      const double a = heads[i], b = heads[i + 1];
      heads[i] = a * std::cos(angle) - b * std::sin(angle);
      heads[i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  void attention(std::vector<Vector>& x) const {
    std::vector<Vector> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Vector h = norm(x[t], "attn_norm.weight");
      q.push_back(matmul("attn_q.weight", h));
      k.push_back(matmul("attn_k.weight", h));
      v.push_back(matmul("attn_v.weight", h));
      rotate(q[t], t);
      rotate(k[t], t);
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Vector out(q[t].size());
      for (int32_t head = 0; head < c_.num_heads; ++head) attend(q[t], k, v, t, head, out);
      add(x[t], matmul("attn_output.weight", out));
    }
  }
  void attend(const Vector& q, const std::vector<Vector>& k, const std::vector<Vector>& v, size_t t, int32_t head,
              Vector& out) const {
    const auto hd = static_cast<size_t>(c_.head_dim);
    const size_t at = static_cast<size_t>(head) * hd;
    const size_t kv_at = static_cast<size_t>(head / (c_.num_heads / c_.num_kv_heads)) * hd;
    Vector weight(t + 1);
    double total = 0;
    for (size_t s = 0; s <= t; ++s) {
      double score = 0;
      for (size_t i = 0; i < hd; ++i) score += q[at + i] * k[s][kv_at + i];
      total += weight[s] = std::exp(score / std::sqrt(static_cast<double>(hd)));
    }
    for (size_t s = 0; s <= t; ++s) {
      for (size_t i = 0; i < hd; ++i) out[at + i] += weight[s] / total * v[s][kv_at + i];
    }
  }
  Vector feed_forward(const Vector& x) const {
    const Vector h = norm(x, "ffn_norm.weight");
    Vector gate = matmul("ffn_gate.weight", h);
    const Vector up = matmul("ffn_up.weight", h);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    return matmul("ffn_down.weight", gate);
  }

  const formats::GgufFile& file_;
  const models::ModelConfig& c_;
  std::string prefix_;  // of the layer
};

}  // namespace

std::vector<std::vector<double>> naive_llama(const formats::GgufFile& file, const models::ModelConfig& config,
                                             const std::vector<int32_t>& ids) {
  return NaiveLlama(file, config).forward(ids);
}

}  // namespace bz::test
