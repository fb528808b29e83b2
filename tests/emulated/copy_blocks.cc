#include "ops/cuda/copy_blocks.cu"
