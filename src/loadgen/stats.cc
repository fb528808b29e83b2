#include "loadgen/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace bz::loadgen {

double percentile(const std::vector<double>& sorted, double share) {
  BZ_CHECK(!sorted.empty());
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Summary summarize(std::vector<double> values) {
  Summary s;
  s.count = values.size();
  if (values.empty()) return s;
  std::sort(values.begin(), values.end());
  s.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  s.p50 = percentile(values, 0.5);
  s.p90 = percentile(values, 0.9);
  s.p99 = percentile(values, 0.99);
  s.max = values.back();
  return s;
}

}  // namespace bz::loadgen
