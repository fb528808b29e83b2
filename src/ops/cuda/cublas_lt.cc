#include "ops/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/log.h"

namespace bz::ops::cuda {
namespace {

// Where CUDA toolkits put it, after the places that the loader knows.
constexpr const char* kFolders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/",
                                    "/usr/local/cuda/targets/x86_64-linux/lib/", "/opt/cuda/lib64/"};

template <class Fn>
bool find(void* library, const char* name, Fn* out) {
  *out = reinterpret_cast<Fn>(dlsym(library, name));
  return *out != nullptr;
}

bool find_all(void* library, CublasLt* lt) {
  return find(library, "cublasLtGetVersion", &lt->version) &&
         find(library, "cublasLtGetStatusString", &lt->status_string) && find(library, "cublasLtCreate", &lt->create) &&
         find(library, "cublasLtMatmulDescCreate", &lt->create_desc) &&
         find(library, "cublasLtMatmulDescSetAttribute", &lt->set_desc) &&
         find(library, "cublasLtMatrixLayoutCreate", &lt->create_layout) &&
         find(library, "cublasLtMatrixLayoutDestroy", &lt->destroy_layout) &&
         find(library, "cublasLtMatmulPreferenceCreate", &lt->create_preference) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", &lt->set_preference) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", &lt->choose) && find(library, "cublasLtMatmul", &lt->matmul);
}

// Is this a library of the version whose header was compiled in? Its calls stay until the process ends.
bool load(const std::string& file, CublasLt* lt) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return false;
  if (find_all(library, lt) && lt->version() / 10000 == CUBLAS_VER_MAJOR) return true;
  dlclose(library);
  return false;
}

Result<const CublasLt*> find_once() {
  static CublasLt calls{};
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  const char* wanted = std::getenv("BLOCKZERO_CUBLASLT");
  if (wanted != nullptr && *wanted != '\0') {
    if (std::string_view(wanted) == "none") return static_cast<const CublasLt*>(nullptr);
    if (load(wanted, &calls)) return &calls;
    return invalid_argument("BLOCKZERO_CUBLASLT={}: not a {}; name that library's file, or none", wanted, name);
  }
  for (const char* folder : kFolders) {
    if (load(folder + name, &calls)) return &calls;
  }
  log::info(
      "no {} on this machine: prompts and batches run on our own, slower kernels (BLOCKZERO_CUBLASLT=FILE names one)",
      name);
  return static_cast<const CublasLt*>(nullptr);
}

}  // namespace

Result<const CublasLt*> find_cublas_lt() {
  static const Result<const CublasLt*> found = find_once();
  return found;
}

const CublasLt* cublas_lt() {
  const Result<const CublasLt*> found = find_cublas_lt();
  return found.ok() ? *found : nullptr;
}

void check_made(const CublasLt& lt, cublasStatus_t status) {
  BZ_CHECK_MSG(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {}", lt.status_string(status));
}

MatrixLayout make_layout(const CublasLt& lt, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_made(lt, lt.create_layout(&layout, type, rows, columns, stride));
  return {layout, lt.destroy_layout};
}

}  // namespace bz::ops::cuda
