#include "ops/cuda/zero_rows.cu"
