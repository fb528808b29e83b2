#include "ops/cuda/prepare.cu"
