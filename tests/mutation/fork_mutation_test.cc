// KV-6: without the copy that a fork is, its choices read bytes that nobody gave them, or each other's.
#include <gtest/gtest.h>

#include "base/mutation.h"
#include "support/models.h"
#include "support/session.h"

namespace bz::test {
namespace {

Trace answers(const std::string& path, uint32_t mutations) {
  engine::LoadOptions o = test_options(path);
  o.null_guard = device::NullGuard::kOff;
  o.block_size = 16;
  o.max_num_seqs = 8;
  const auto model = load(o);
  engine::Request r;
  for (int32_t i = 0; i < 25; ++i) r.prompt.push_back(i * 11 % 320);  // a full block, and an open one
  r.max_tokens = 10;
  r.ignore_eos = true;
  r.sampling.seed = 7;
  r.num_choices = 3;
  g_mutations = mutations;
  const Trace trace = run_requests(*model, {r}, {});
  g_mutations = 0;
  return trace;
}

TEST(ForkMutation, AForkWithoutItsCopyCorruptsTheSibling) {
  const TemporaryModel file(quantized_tiny());
  const Trace right = answers(file.path(), 0);
  EXPECT_EQ(first_difference(right, answers(file.path(), 0)), "");
  const Trace wrong = answers(file.path(), mutation_bit(Mutation::kSharedBlockIsWritten));
  EXPECT_EQ(right[0], wrong[0]);  // it computed the prompt itself
  EXPECT_NE(right[1], wrong[1]);
  EXPECT_NE(right[2], wrong[2]);
}

}  // namespace
}  // namespace bz::test
