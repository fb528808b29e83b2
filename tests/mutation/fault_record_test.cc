// A fault of the device is fail-stop, and its record names it: the process that faults saves what the host knows and
// exits 1, naming step and graph; a new one replays the addresses op by op and names op, layer, group and row.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/mutation.h"
#include "engine/fault_record.h"
#include "mutation/scenarios.h"
#include "support/models.h"

namespace bz::test {
namespace {

constexpr uint32_t kFault = mutation_bit(Mutation::kSlotWithoutNullTest) | mutation_bit(Mutation::kCountPaddedAsValid);

void replay(const std::string& path) {
  g_mutations = kFault;
  const Status status =
      engine::replay_fault_record(path, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  std::fprintf(stderr, "no fault: %s\n", status.message().c_str());
  std::exit(0);
}

TEST(FaultRecordDeathTest, IsSavedAndNamesOpLayerGroupAndRow) {
  BZ_SKIP_WITHOUT_TEST_DEVICE();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "blockzero_fault_record_test";
  std::filesystem::create_directory(folder);
  setenv("BLOCKZERO_FAULT_DIR", folder.c_str(), 1);
  const TemporaryModel file(quantized_tiny());
  EXPECT_EXIT(play(file.path(), "cuda", Scenario::kPaddedDecode, kFault, device::NullGuard::kReadOnly, false),
              testing::ExitedWithCode(1), "faulted in step 1, graph decode-1.*\n.*saved to .*blockzero replay");

  std::string record;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) record = entry.path().string();
  ASSERT_NE(record, "");
  EXPECT_EXIT(replay(record), testing::ExitedWithCode(1),
              "group 0: token 0 of table row 0 \\(padding\\) writes slot 0 in block 0, the null block\n"
              "fault on the device: step 2, norm_qkv, layer 0: cudaErrorIllegalAddress");

  std::ifstream in(record);
  std::filesystem::remove(nlohmann::json::parse(in).at("options").at("model_path").get<std::string>());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace bz::test
