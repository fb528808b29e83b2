// The loop of every CPU sampler: the samples of each batch row, one after the other, as long as they agree with the
// drafts behind them.
#pragma once

#include "device/cpu/worker.h"
#include "ops/sample_finish.h"

namespace bz::ops::cpu {

// sample(b, i, n): sample i of n of batch row b.
template <class Sample>
void sample_row(const SampleParams& p, int64_t b, Sample&& sample) {
  RowResult samples[1 + kMaxDraftTokens];
  const int32_t n = num_samples(p.view, p.sample_row, b);
  for (int32_t i = 0; i < n; ++i) {
    samples[i] = sample(b, i, n);
    if (i + 1 < n && samples[i].token != draft_after(p.view, b, i, n)) break;
  }
  finish_row(p, b, samples, n);
}

template <class Sample>
void sample_each_row(const SampleParams& p, device::cpu::Worker& worker, Sample&& sample) {
  if (worker.index() == 0) finish_header(p);
  worker.parallel_for(p.view.padded_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) sample_row(p, b, sample);
  });
}

}  // namespace bz::ops::cpu
