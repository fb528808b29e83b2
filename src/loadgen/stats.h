// Percentiles of measured values, by linear interpolation between the two nearest (as numpy's default does).
#pragma once

#include <cstddef>
#include <vector>

namespace bz::loadgen {

struct Summary {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

// share: 0 to 1. REQUIRES: sorted, not empty.
double percentile(const std::vector<double>& sorted, double share);
Summary summarize(std::vector<double> values);

}  // namespace bz::loadgen
