#include "support/models.h"

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "formats/test_files.h"

namespace bz::test {

// BLOCKZERO_TEST_DEVICE=cuda:0: the same tests, on a GPU.
static const char* test_device() { return std::getenv("BLOCKZERO_TEST_DEVICE"); }
bool tests_use_gpu() { return test_device() != nullptr; }

TemporaryModel::TemporaryModel(const models::TinyLlama& tiny) {
  path_ = (std::filesystem::temp_directory_path() / "blockzero_tiny_XXXXXX").string();
  const int fd = mkstemp(path_.data());
  BZ_CHECK_GE(fd, 0);
  close(fd);
  const Status written = tiny.writer().write(path_);
  BZ_CHECK_MSG(written.ok(), "{}", written.message());
}

TemporaryModel::~TemporaryModel() { std::filesystem::remove(path_); }

models::TinyLlama quantized_tiny() {
  models::TinyLlama tiny;
  tiny.vocab_size = 320;
  tiny.matrix_type = DType::kQ4_1;
  tiny.embedding_type = DType::kQ8_0;
  if (tests_use_gpu()) tiny.num_layers = 8, tiny.num_heads = 8, tiny.num_kv_heads = 4, tiny.head_dim = 128;
  return tiny;
}

bool have_test_device() {
  static const bool have = !tests_use_gpu() || device::create_device({.name = test_device()}).ok();
  return have;
}

std::vector<std::string> available_isas() {
  if (tests_use_gpu()) return {"cuda", "cuda-batch-invariant"};
  std::vector<std::string> isas;
  for (const char* isa : {"reference", "avx2", "avx512-vnni"}) {
    setenv("BLOCKZERO_ISA", isa, 1);
    if (ops::op_table_for(device::DeviceKind::kCpu).ok()) isas.emplace_back(isa);
  }
  unsetenv("BLOCKZERO_ISA");
  return isas;
}

std::vector<std::string> batch_invariant_isas() {
  if (tests_use_gpu()) return {"cuda-batch-invariant"};
  return available_isas();
}

std::string isa_test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::unique_ptr<engine::LoadedModel> load(const engine::LoadOptions& given, const std::string& isa) {
  engine::LoadOptions options = given;
  if (isa.starts_with("cuda")) {
    options.device.name = test_device();
    constexpr int64_t kGranule = int64_t{2} << 20;  // one more is the null block's
    constexpr int64_t kMost = int64_t{2} << 30;
    options.kv_cache_bytes = std::min(options.kv_cache_bytes * kGpuEntryFactor, kMost) / kGranule * kGranule + kGranule;
    options.batch_invariant = isa == "cuda-batch-invariant";
  } else if (isa.empty()) {
    unsetenv("BLOCKZERO_ISA");
  } else {
    setenv("BLOCKZERO_ISA", isa.c_str(), 1);
  }
  auto model = engine::LoadedModel::load(options);
  BZ_CHECK_MSG(model.ok(), "{}", model.status().message());
  BZ_CHECK(isa.empty() || (*model)->isa() == isa);
  return std::move(*model);
}

engine::LoadOptions test_options(const std::string& model_path) {
  engine::LoadOptions o;
  o.model_path = model_path;
  o.null_guard = device::NullGuard::kHard;
  o.device.num_threads = 1;
  o.kv_cache_bytes = int64_t{16} << 20;
  o.prefix_caching = false;
  return o;
}

std::string smollm2_or_die() {
  const std::string path = formats::smollm2_path();
  if (!std::filesystem::exists(path)) {
    std::fprintf(stderr, "%s is missing: run ./dev test, which fetches it\n", path.c_str());
    std::exit(1);
  }
  return path;
}

}  // namespace bz::test
