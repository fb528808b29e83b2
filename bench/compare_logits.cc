// The error of one file of teacher-forced logits against another, in one JSON line; tools/oracle/compare.py without
// Python's packages.
//
//   compare_logits GOT.f32 WANT.f32 VOCAB
//
// relative_rms: sqrt(sum (got - want)^2 / sum want^2). p999, max: of |got - want|. kl: mean over positions of
// KL(want || got), nats. same_top: share of positions with the same best id.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace {

[[noreturn]] void die(const std::string& message) {
  fmt::print(stderr, "compare_logits: {}\n", message);
  std::exit(2);
}

std::vector<float> read_floats(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) die(path + ": cannot be read");
  std::vector<float> values(static_cast<size_t>(in.tellg()) / sizeof(float));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

double log_sum_exp(std::span<const float> row) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (float x : row) sum += std::exp(x - top);
  return top + std::log(sum);
}

double kl_divergence(std::span<const float> want, std::span<const float> got) {
  const double want_norm = log_sum_exp(want), got_norm = log_sum_exp(got);
  double kl = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double p = want[i] - want_norm;
    kl += std::exp(p) * (p - (got[i] - got_norm));
  }
  return kl;
}

bool same_top(std::span<const float> a, std::span<const float> b) {
  return std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) die("usage: compare_logits GOT.f32 WANT.f32 VOCAB");
  const std::vector<float> got = read_floats(argv[1]), want = read_floats(argv[2]);
  const size_t vocab = std::strtoul(argv[3], nullptr, 10);
  if (vocab == 0 || want.empty() || want.size() % vocab != 0) die(std::string(argv[2]) + ": not [positions, vocab]");
  if (got.size() != want.size())
    die(fmt::format("{} has {} logits, {} has {}", argv[1], got.size(), argv[2], want.size()));

  double error_sum = 0, want_sum = 0, kl = 0, same = 0;
  std::vector<double> errors(got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    errors[i] = std::fabs(double{got[i]} - double{want[i]});
    if (!std::isfinite(errors[i])) die(fmt::format("logit {} of row {} is not finite", i % vocab, i / vocab));
    error_sum += errors[i] * errors[i];
    want_sum += double{want[i]} * double{want[i]};
  }
  const size_t rows = want.size() / vocab;
  for (size_t r = 0; r < rows; ++r) {
    const std::span<const float> w(want.data() + r * vocab, vocab), g(got.data() + r * vocab, vocab);
    kl += kl_divergence(w, g);
    same += same_top(w, g) ? 1 : 0;
  }
  const auto n999 = static_cast<int64_t>(0.999 * static_cast<double>(errors.size() - 1));
  std::nth_element(errors.begin(), errors.begin() + n999, errors.end());
  const double p999 = errors[static_cast<size_t>(n999)];
  fmt::print(
      "{{\"positions\": {}, \"relative_rms\": {:.6g}, \"p999\": {:.6g}, \"max\": {:.6g}, \"kl\": {:.6g}, "
      "\"same_top\": {:.6g}}}\n",
      rows, std::sqrt(error_sum / want_sum), p999, *std::ranges::max_element(errors), kl / static_cast<double>(rows),
      same / static_cast<double>(rows));
  return 0;
}
