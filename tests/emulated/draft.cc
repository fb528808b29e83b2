#include "ops/cuda/draft.cu"
