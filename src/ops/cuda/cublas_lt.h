// cuBLASLt, found at run time: a machine without it starts, and its products run on kernels of our own.
//
// BLOCKZERO_CUBLASLT=none goes without it; =FILE takes that library and no other.
#pragma once

#include <memory>

#include <cublasLt.h>

#include "base/status.h"

namespace bz::ops::cuda {

// Types only: nothing here links the library.
struct CublasLt {
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) create_desc;
  decltype(&cublasLtMatmulDescSetAttribute) set_desc;
  decltype(&cublasLtMatrixLayoutCreate) create_layout;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmul) matmul;
};

// Looked for once. nullptr: there is none here (said once) or none is wanted. An error: what BLOCKZERO_CUBLASLT names
// is no such library.
Result<const CublasLt*> find_cublas_lt();

// Of find_cublas_lt(), once it has succeeded.
const CublasLt* cublas_lt();

// Descriptors are a few host bytes: a failure to make one is a fault of ours.
void check_made(const CublasLt& lt, cublasStatus_t status);

// How a matrix lies, columns first.
using MatrixLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, decltype(CublasLt::destroy_layout)>;
MatrixLayout make_layout(const CublasLt& lt, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t stride);

}  // namespace bz::ops::cuda
